"""`yurt job`: run jobs, show them and change them."""

from __future__ import annotations

MODULES = {
    "action": ("action",),
    "files": (
        "init",
        "convert",
        "inspect",
    ),
    "plan": (
        "validate",
        "plan",
        "why-not",
    ),
    "report": ("report",),
    "restart": ("restart",),
    "run": (
        "run",
        "start",
        "stop",
        "eval",
        "dispatch",
        "periodic",
    ),
    "scaling": (
        "scale",
        "scaling-events",
    ),
    "status": (
        "status",
        "allocs",
        "deployments",
        "promote",
    ),
    "versions": (
        "history",
        "revert",
        "tag",
    ),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "job tag": "Name versions of a job",
    "job periodic": "Act on periodic jobs",
}
