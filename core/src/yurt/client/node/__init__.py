"""The node that this client is: its present description, its metadata, its use of the host, its events."""
