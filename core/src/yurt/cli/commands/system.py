"""`yurt system`: work on the cluster as a whole."""

from __future__ import annotations

from yurt.cli.declaration import CliCommand, Invocation


def collect_garbage(call: Invocation) -> int:
    """Collect everything that has ended, whatever its age; prints nothing on success."""
    call.api.put("/v1/system/gc")
    return 0


def reconcile_summaries(call: Invocation) -> int:
    """Recompute the summaries of jobs; prints nothing on success."""
    call.api.put("/v1/system/reconcile/summaries")
    return 0


COMMANDS = (
    CliCommand("system gc", "Remove jobs, evaluations, allocations and deployments that have ended", collect_garbage),
    CliCommand(
        "system reconcile summaries",
        "Do nothing: summaries of jobs are always exact",
        reconcile_summaries,
        details="The command exists for scripts made for Nomad.",
    ),
)
GROUPS = {
    "system reconcile": "For scripts made for Nomad",
}
