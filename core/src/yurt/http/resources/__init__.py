"""Routes of jobs, allocations, nodes and the other objects of the state."""
