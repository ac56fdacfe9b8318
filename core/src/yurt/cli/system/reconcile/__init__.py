"""Commands of `yurt system reconcile`."""
