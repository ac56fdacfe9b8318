"""Isolated tasks for an OCI runtime: bundle, permitted isolation, system call filter, hidden paths, runc calls."""
