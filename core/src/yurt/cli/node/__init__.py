"""Commands of `yurt node`."""
