"""Commands of `yurt operator root keyring`."""
