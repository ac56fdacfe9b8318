"""Queues of batch jobs by node pool: which waiting evaluations the scheduler gets next."""
