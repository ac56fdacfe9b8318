"""`yurt operator snapshot restore`."""

from __future__ import annotations

from pathlib import Path

from yurt.cli.api.client import error_of
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError


def run(call: Invocation) -> int:
    """Replace the state of the cluster by the one in the file."""
    path = Path(call.args[0])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    answer = call.api.raw("PUT", "/v1/operator/snapshot", data, {"Content-Type": "application/octet-stream"})
    if answer.status >= 400:
        raise error_of(answer)
    call.screen.line("Snapshot Restored")
    return 0


COMMAND = Command(
    "operator snapshot restore",
    "Replace the state of the cluster by the one in a file.",
    run,
    (),
    (1, 1),
    "<file>",
    "one argument: <file>",
    details="What runs follows the restored state: allocations that it does not know are stopped.",
)
