"""Commands of `yurt scaling policy`."""
