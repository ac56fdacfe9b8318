"""Commands of `yurt operator snapshot`."""
