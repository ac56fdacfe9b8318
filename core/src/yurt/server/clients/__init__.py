"""Clients of this server: their calls, heartbeats, introductions and identities."""
