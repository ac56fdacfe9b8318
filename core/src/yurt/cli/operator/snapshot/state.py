"""`yurt operator snapshot state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import texts
from yurt.sdk.errors import Invalid
from yurt.sdk.value import wire_name

if TYPE_CHECKING:
    from yurt.state import Snapshot
    from yurt.state.table import Table

HIDDEN = "<hidden>"
Row = dict[str, Any]
Keep = Callable[[Mapping[str, Any]], bool]


def run(call: Invocation) -> int:
    """The rows of every table, as JSON."""
    from yurt.api.filter import compile_filter
    from yurt.storage.archive import read_archive, state_of

    path = Path(call.args[0])
    try:
        filters = [compile_filter(text) for text in call.flags.texts("filter")]
        with path.open("rb") as file:
            state = state_of(read_archive(file))
        for line in lines(state, filters):
            call.screen.line(line)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    return 0


def lines(state: Snapshot, filters: Sequence[Keep]) -> Iterator[str]:
    """The state as JSON, one row a line; of the tables that have the fields of the filters, the rows that fit.

    Raises Invalid when no table has them.
    """
    from yurt.api.encode import encode_builtins

    unfit: Invalid | None = None
    fits = not filters
    yield f'{{\n  "Index": {state.index}'
    for table in state.tables():
        try:
            rows = [row for row in rows_of(table) if all(keep(row) for keep in filters)]
        except Invalid as error:
            unfit = error
            continue
        fits = fits or bool(len(table))
        if rows:
            texts = ",\n    ".join(encode_builtins(row).decode() for row in rows)
            yield f'  ,"{wire_name(table.name)}": [\n    {texts}\n  ]'
    if not fits and unfit is not None:
        raise unfit
    yield "}"


def rows_of(table: Table[Any, Any]) -> Iterator[Row]:
    """The rows as the API spells them, without what only their owners may know."""
    from yurt.api.encode import to_wire

    for value in table.values():
        wire = to_wire(value)
        if table.name == "nodes":
            wire["SecretID"] = HIDDEN
        elif table.name == "csi_volumes":
            wire["Secrets"] = dict.fromkeys(wire["Secrets"] or {}, HIDDEN)
        elif table.name == "variables" and wire["Lock"]:
            wire["Lock"]["ID"] = HIDDEN
        yield wire


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
