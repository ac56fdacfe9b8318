"""Commands of `yurt server`."""
