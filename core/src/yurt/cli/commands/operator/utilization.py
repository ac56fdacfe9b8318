"""`yurt operator utilization`."""

from __future__ import annotations

import os

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import text, without_effect
from yurt.cli.terminal.text import SECOND, now_ns


def write_utilization(call: Invocation) -> int:
    """Write the cluster's size and usage of this moment to a JSON file; never overwrites."""
    import base64
    import json
    from pathlib import Path

    path = Path(call.flags.text("output") or f"nomad-utilization-{now_ns() // SECOND}.json")
    bundle = base64.b64decode(call.api.put("/v1/operator/utilization", {})["Bundle"])
    if message := call.flags.text("message"):
        bundle = json.dumps({**json.loads(bundle), "Message": message}).encode()
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(bundle + b"\n")
    except FileExistsError:
        raise CliError(f"{path}: already exists; name another file with -output, or remove it first") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    call.screen.line(f"Success! Utilization reporting bundle written to: {path}")
    return 0


COMMANDS = (
    CliCommand(
        "operator utilization",
        "Write the size and usage of the cluster to a file",
        write_utilization,
        (
            text("output", "The file; a name with the time in the present folder without it."),
            text("message", "A note to keep in the file, as Message."),
            without_effect("today-only"),
        ),
        details="JSON: the numbers of nodes, servers, jobs, allocations and devices, what the nodes have of CPU and "
        "memory, and how much of it is allocated.",
    ),
)
