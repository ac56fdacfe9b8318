"""`yurt system gc`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Remove what has ended, whatever its age; silent when it went well."""
    call.api.put("/v1/system/gc")
    return 0


COMMAND = Command("system gc", "Remove all that has ended: jobs, evaluations, allocations, deployments.", run)
