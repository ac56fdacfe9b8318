"""`yurt operator snapshot save`."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

from yurt.cli.api.client import error_of
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch
from yurt.cli.terminal.text import SECOND, now_ns


def run(call: Invocation) -> int:
    """Write the state of the cluster to a file that only its owner can read; nothing is overwritten."""
    path = Path(call.args[0] if call.args else f"backup-{now_ns() // SECOND}.snap")
    answer = call.api.raw("GET", "/v1/operator/snapshot" + ("?stale" if call.flags.is_on("stale") else ""))
    if answer.status >= 400:
        raise error_of(answer)
    digest = base64.b64encode(hashlib.sha256(answer.body).digest()).decode()
    if answer.headers.get("digest") != f"sha-256={digest}":
        raise CliError("The snapshot was damaged on its way: its digest does not fit. Save it again.")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(answer.body)
    except FileExistsError:
        raise CliError(f"{path}: already exists; name another file, or remove it first") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    call.screen.line(f"State file written to {path}")
    return 0


COMMAND = Command(
    "operator snapshot save",
    "Write the state of the cluster to a file.",
    run,
    (switch("stale", "Ask also a server that does not lead."),),
    (0, 1),
    "[<file>]",
    "at most one argument: <file>",
    details="Without a file name: backup-<time>.snap in the present folder.",
)
