"""What a client finds out about its host and tells the servers as a node."""
