"""Every command by its name: the module that holds it and one line about it; names only, so that help costs no
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
    "service": "Look at registered services",
    "system": "Work on the system as a whole",
}

_SUMMARIES = {
    "agent": "Run an agent: a server, a client or both",
    "alloc checks": "Show the checks of an allocation's services",
    "alloc fs": "List and print files of an allocation",
    "alloc logs": "Print what a task writes",
    "alloc restart": "Restart tasks of an allocation",
    "alloc signal": "Send a signal to tasks of an allocation",
    "alloc status": "Show an allocation and its tasks",
    "alloc stop": "Stop an allocation; another one takes its place",
    "alloc why": "Say why an allocation is on its node",
    "deployment fail": "End a deployment as failed",
    "deployment list": "List deployments",
    "deployment pause": "Pause a deployment",
    "deployment promote": "Promote the canaries of a deployment",
    "deployment resume": "Resume a paused deployment",
    "deployment status": "Show a deployment",
    "doctor": "Say what is missing on this host, and how to fix it",
    "eval list": "List evaluations",
    "eval status": "Show an evaluation: what it placed, and why not the rest",
    "fmt": "Bring job files into the usual form",
    "job allocs": "List the allocations of a job",
    "job convert": "Turn a job file into JSON, or JSON into a job file",
    "job deployments": "List the deployments of a job",
    "job dispatch": "Start a child of a parameterized job",
    "job eval": "Have a job evaluated again",
    "job history": "Show the versions of a job",
    "job init": "Write an example job file",
    "job inspect": "Print a job as JSON, or its source",
    "job periodic force": "Start an instance of a periodic job now",
    "job plan": "Show what `job run` would do",
    "job restart": "Restart the tasks of a job, some at a time",
    "job revert": "Go back to a former version of a job",
    "job run": "Run a new job, or update one",
    "job scale": "Change how many allocations a group has",
    "job status": "List jobs, or show how one fares",
    "job stop": "Stop jobs",
    "job validate": "Check a job file without running it",
    "job why-not": "Say what keeps a job off the nodes, and what would change it",
    "monitor": "Follow the log of the agent",
    "namespace apply": "Make or change a namespace",
    "namespace delete": "Delete a namespace",
    "namespace list": "List namespaces",
    "namespace status": "Show a namespace",
    "node drain": "Move everything away from a node",
    "node eligibility": "Let a node have new allocations, or not",
    "node pool info": "Show a node pool",
    "node pool list": "List node pools",
    "node status": "List nodes, or show one",
    "operator api": "Send any request to the API",
    "operator scheduler get-config": "Show the scheduler's configuration",
    "operator scheduler set-config": "Change the scheduler's configuration",
    "plugin list": "List Yurt's plugins and how they fare",
    "server members": "List the servers",
    "service delete": "Forget an instance of a service",
    "service info": "Show the instances of a service",
    "service list": "List services",
    "status": "Show whatever has this id",
    "system gc": "Remove all that has ended",
    "version": "Print the version",
}

_RENAMED = {"fmt": "format"}


def _module(name: str) -> str:
    return "yurt.cli." + _RENAMED.get(name, name.replace(" ", ".").replace("-", "_"))


COMMANDS: dict[str, tuple[str, str]] = {name: (_module(name), summary) for name, summary in _SUMMARIES.items()}

ALIASES = {
    "alloc-status": "alloc status",
    "eval-status": "eval status",
    "fs": "alloc fs",
    "init": "job init",
    "inspect": "job inspect",
    "logs": "alloc logs",
    "node-drain": "node drain",
    "node-status": "node status",
    "plan": "job plan",
    "run": "job run",
    "server-members": "server members",
    "stop": "job stop",
    "validate": "job validate",
}
