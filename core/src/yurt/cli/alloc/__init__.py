"""Commands of `yurt alloc`."""
