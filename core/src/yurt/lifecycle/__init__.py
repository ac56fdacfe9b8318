"""The client's state machines: restarts, tasks, allocations, health and heartbeats. Pure."""
