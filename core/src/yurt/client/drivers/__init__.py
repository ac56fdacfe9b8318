"""Drivers of this node by name, and their exchange for newer code."""
