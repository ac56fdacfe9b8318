"""Commands of `yurt operator scheduler`."""
