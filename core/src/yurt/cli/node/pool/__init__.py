"""Commands of `yurt node pool`."""
