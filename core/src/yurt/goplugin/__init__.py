"""Nomad's plugin protocol: drivers and devices that are binaries, and our drivers offered to Nomad."""
