"""Commands of `yurt operator root`."""
