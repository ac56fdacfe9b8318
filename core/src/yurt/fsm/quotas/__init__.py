"""Quotas in the state machine: their specifications, and the limits on stored data."""
