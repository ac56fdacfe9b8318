"""Commands of `yurt deployment`."""
