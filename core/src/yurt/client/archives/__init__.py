"""Untrusted archives: read as a stream and written beneath an open folder that no entry can leave."""
