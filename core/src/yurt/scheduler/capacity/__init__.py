"""The resources of allocations on nodes and under cluster-wide limits, and those left by plans in flight."""
