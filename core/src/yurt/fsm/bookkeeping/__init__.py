"""Derived changes of a command: counters of summaries and of deployments."""
