"""The node of this client: its present description, its metadata, its events."""
