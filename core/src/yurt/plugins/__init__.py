"""Finds, loads and watches plugins."""
