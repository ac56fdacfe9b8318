"""The resources of allocations on nodes and under quotas, with plans in flight counted."""
