"""Compares a job's declaration with its allocations: stops, updates, requested placements; no node is chosen here."""
