"""Artifacts: what a task has downloaded before it starts, by a child process with limits."""
