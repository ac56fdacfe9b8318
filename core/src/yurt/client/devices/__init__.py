"""Devices of this machine: what plugins offer, which task holds which, and their usage."""
