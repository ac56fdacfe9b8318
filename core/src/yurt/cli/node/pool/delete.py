"""`yurt node pool delete`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("node", "pool", call.args[0]))
    call.screen.line(f'Successfully deleted node pool "{call.args[0]}"!')
    return 0


COMMAND = Command(
    "node pool delete",
    "Delete a node pool that has no nodes and no jobs that live.",
    run,
    (),
    (1, 1),
    "<node-pool>",
    "one argument: <node-pool>",
)
