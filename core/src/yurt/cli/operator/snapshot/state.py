"""`yurt operator snapshot state`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import texts
from yurt.cli.operator.state_text import lines
from yurt.sdk.errors import Invalid


def run(call: Invocation) -> int:
    """The rows of every table, as JSON."""
    from yurt.api.filter import compile_filter
    from yurt.storage.archive import state_of
    from yurt.storage.archive_check import check_archive_here

    path = Path(call.args[0])
    try:
        filters = [compile_filter(text) for text in call.flags.texts("filter")]
        with path.open("rb") as file, tempfile.TemporaryFile() as state:
            archive, _ = check_archive_here(file, state)
            for line in lines(state_of(archive, state), filters):
                call.screen.line(line)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    return 0


COMMAND = Command(
    "operator snapshot state",
    "Print the state in a file of `operator snapshot save` as JSON.",
    run,
    (texts("filter", "Print only rows that fit this expression; may be given several times, and all must fit."),),
    (1, 1),
    "<file>",
    "one argument: <file>",
    details="""
The output is an object: Index, and for each table that has rows (Jobs, Nodes, Allocs, Evals, ...) their list, one row a
line. Filters are written as those of the API (-filter 'JobID == "web"'); tables without the fields of a filter are left
out. Variables stay encrypted; secrets of nodes, of volumes and of locks are not printed. The file's digests are checked
first.
""",
    is_client=False,
)
