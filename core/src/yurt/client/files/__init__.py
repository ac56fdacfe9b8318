"""Directories of allocations, and access to their files and logs."""
