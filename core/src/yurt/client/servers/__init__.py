"""The way to the servers: registration, heartbeats, and the identity of this node."""
