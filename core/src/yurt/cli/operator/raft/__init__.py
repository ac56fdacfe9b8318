"""Commands of `yurt operator raft`."""
