"""Commands of `yurt job periodic`."""
