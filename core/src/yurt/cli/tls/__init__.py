"""Commands of `yurt tls`."""
