"""Commands of `yurt tls cert`."""
