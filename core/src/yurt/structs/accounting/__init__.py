"""Records of the use of resources that outlive their allocations."""
