"""Commands of `yurt config`."""
