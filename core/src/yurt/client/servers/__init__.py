"""Contact to the servers: registration, heartbeats, and the node's identity."""
