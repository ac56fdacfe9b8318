"""Commands of `yurt scaling`."""
