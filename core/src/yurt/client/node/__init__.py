"""The node of this client: its current description, its metadata, its events."""
