"""Commands of `yurt job tag`."""
