"""Services of allocations: registration and checks."""
