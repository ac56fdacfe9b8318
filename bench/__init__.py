"""Benchmarks: `python -m bench` prints the tables of docs/explanation/performance.md."""
