"""CSI volumes in simulated clusters: a plugin on each node, what users ask of volumes, and what must hold."""
