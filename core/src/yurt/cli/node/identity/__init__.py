"""Commands of `yurt node identity`."""
