"""Fingerprints: what the client detects of its host and registers as its node."""
