"""Commands of `yurt operator`."""
