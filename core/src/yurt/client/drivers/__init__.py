"""Drivers of this node: fingerprints, and replacement by newer code while tasks run."""
