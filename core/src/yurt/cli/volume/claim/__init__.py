"""Commands of `yurt volume claim`."""
