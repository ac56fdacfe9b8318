"""Every command by its name: the module that holds it and one line about it. Only names, so that help costs no
imports.
"""

from __future__ import annotations

COMMON = ("agent", "job", "alloc", "node", "deployment", "eval", "status", "doctor", "version")

GROUPS = {
    "alloc": "Look at allocations and act on them",
    "deployment": "Look at deployments and steer them",
    "eval": "Look at evaluations",
    "job": "Run jobs, look at them and change them",
    "job periodic": "Act on periodic jobs",
    "namespace": "Look at namespaces and change them",
    "node": "Look at client nodes and act on them",
    "node pool": "Look at node pools",
    "operator": "Tools for operators of a cluster",
    "operator scheduler": "The scheduler's configuration",
    "plugin": "Look at Yurt's plugins: drivers and what else is installed",
    "server": "Look at the servers",
    "system": "Work on the system as a whole",
}

COMMANDS: dict[str, tuple[str, str]] = {
    "agent": ("yurt.cli.agent", "Run an agent: a server, a client or both"),
    "version": ("yurt.cli.version", "Print the version"),
    "job run": ("yurt.cli.job.run", "Run a new job, or update one"),
    "job status": ("yurt.cli.job.status", "List jobs, or show how one fares"),
}

ALIASES = {
    "run": "job run",
}
