"""Commands of `yurt driver`."""
