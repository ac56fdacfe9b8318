"""Commands of `yurt job`."""
