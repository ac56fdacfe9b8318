"""Benchmarks: `python -m bench` prints the tables that the README quotes."""
