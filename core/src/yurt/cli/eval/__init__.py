"""Commands of `yurt eval`."""
