"""Simulations of a cluster on a copy of its state: what changes would do, and how a trace of submissions would run."""
