"""Commands of `yurt system`."""
