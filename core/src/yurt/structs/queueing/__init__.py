"""Queues of batch jobs: their configuration, and the usage of tenants."""
