"""The client's machines: allocation, task and health, restart."""
