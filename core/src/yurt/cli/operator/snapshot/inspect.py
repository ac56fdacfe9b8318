"""`yurt operator snapshot inspect`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch
from yurt.cli.terminal.text import bytes_text
from yurt.sdk.errors import Invalid


def run(call: Invocation) -> int:
    """What a file holds; the digests and the state are checked."""
    from yurt.storage.archive_check import check_archive_here

    path = Path(call.args[0])
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tempfile.TemporaryFile() as state:
            archive, tables = check_archive_here(file, state)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    if call.flags.is_on("json"):
        counts = [{"Type": each.table, "Count": each.rows} for each in tables]
        facts = {"ID": archive.id, "Size": size, "Index": archive.state_index, "Term": 1, "Version": archive.version}
        call.screen.json(facts | {"Types": counts})
        return 0
    call.screen.pairs(
        [
            ("ID", archive.id),
            ("Size", bytes_text(size)),
            ("Index", archive.state_index),
            ("Term", 1),
            ("Version", archive.version),
        ]
    )
    call.screen.line()
    call.screen.table("Type|Count", [[each.table, str(each.rows)] for each in tables])
    return 0


COMMAND = Command(
    "operator snapshot inspect",
    "Show what a file of `operator snapshot save` holds, and check it.",
    run,
    (switch("json", "Print JSON."),),
    (1, 1),
    "<file>",
    "one argument: <file>",
    is_client=False,
)
