"""Shared services of the packages that do IO: clock, ids, randomness, supervised tasks, logs and metrics."""
