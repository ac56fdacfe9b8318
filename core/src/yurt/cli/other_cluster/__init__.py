"""Reads the state of another cluster, also of Nomad, through its HTTP API; nothing that it answers is trusted."""
