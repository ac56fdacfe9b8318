"""Commands of `yurt tls ca`."""
