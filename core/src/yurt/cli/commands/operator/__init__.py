"""`yurt operator`: tools for the operators of a cluster."""

from __future__ import annotations

MODULES = {
    "api": ("api",),
    "autopilot": ("autopilot",),
    "client_state": ("client-state",),
    "debug": ("debug",),
    "gossip": ("gossip",),
    "keyring": ("root",),
    "metrics": ("metrics",),
    "offline": ("raft",),
    "raft": ("raft",),
    "scheduler": ("scheduler",),
    "snapshot": ("snapshot",),
    "utilization": ("utilization",),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "operator autopilot": "Configuration and health of the servers' autopilot",
    "operator gossip": "What protects the servers' traffic instead of a gossip key",
    "operator gossip keyring": "There is no gossip key: what protects servers instead",
    "operator raft": "The servers that keep the log, and the log itself",
    "operator root": "The root keyring",
    "operator root keyring": "The keys that encrypt variables and sign identities",
    "operator scheduler": "The configuration of the scheduler",
    "operator snapshot": "Save and restore the state of the cluster",
}
