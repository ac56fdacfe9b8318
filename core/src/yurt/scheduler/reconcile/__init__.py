"""Compares a job's declaration with its allocations: stops, updates, requested placements; it chooses no nodes."""
