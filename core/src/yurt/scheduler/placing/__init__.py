"""Choose a node for each wanted placement: ranking, runs of equal placements, spreads and cells, preemption."""
