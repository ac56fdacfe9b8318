"""Yurt: a workload orchestrator that speaks Nomad's API."""

__version__ = "0.1.0"
