"""`yurt namespace delete`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("namespace", call.args[0]))
    call.screen.line(f'Successfully deleted namespace "{call.args[0]}"!')
    return 0


COMMAND = Command(
    "namespace delete", "Delete an empty namespace.", run, (), (1, 1), "<namespace>", "one argument: <namespace>"
)
