"""Plugins of third parties in the simulator (`yurt driver sim`)."""
