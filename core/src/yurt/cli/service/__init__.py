"""Commands of `yurt service`."""
