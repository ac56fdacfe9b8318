"""Yurt: a workload orchestrator that speaks Nomad's API."""

__version__ = "0.1.0"
NOMAD_VERSION = "2.0.6"
"""The version of Nomad whose API this is: what clients read as the version of agents, in a form that they can compare.
"""
