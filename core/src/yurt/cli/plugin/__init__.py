"""Commands of `yurt plugin`."""
