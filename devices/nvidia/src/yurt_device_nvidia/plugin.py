"""The entry point of nvidia."""
