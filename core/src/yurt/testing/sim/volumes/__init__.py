"""Host volumes in simulated clusters: what users ask of them, and what must hold."""
