"""Chooses a node for each requested placement: ranking, runs of equal placements, spreads and cells, preemption."""
