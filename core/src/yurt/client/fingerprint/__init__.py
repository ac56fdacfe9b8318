"""Fingerprints: the facts about its host that the client detects and registers as its node."""
