"""Commands of `yurt node meta`."""
