"""Command logs, snapshots and the client database."""
