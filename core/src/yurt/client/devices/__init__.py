"""Devices of this machine: what the plugins offer, which task holds what, and how much of it is used."""
