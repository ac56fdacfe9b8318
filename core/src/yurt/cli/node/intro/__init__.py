"""Commands of `yurt node intro`."""
