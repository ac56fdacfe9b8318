"""Commands of `yurt volume`."""
