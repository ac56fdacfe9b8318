"""Artifacts: files that a task downloads before it starts, by a confined child process."""
