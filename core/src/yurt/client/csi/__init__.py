"""CSI plugins that run as tasks on this node, and the volumes that they mount for allocations."""
