"""The client: the part of an agent that runs allocations on its machine."""
