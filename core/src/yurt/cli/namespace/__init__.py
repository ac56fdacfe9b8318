"""Commands of `yurt namespace`."""
