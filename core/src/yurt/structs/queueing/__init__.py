"""Queues of batch jobs: their configuration, and what tenants have used."""
