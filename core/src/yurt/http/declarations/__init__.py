"""The declarations of all routes; their handlers are imported with their first requests."""
