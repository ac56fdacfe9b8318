"""Bugs planted on purpose, by the part of Yurt that they change (`seeded_bugs`)."""
