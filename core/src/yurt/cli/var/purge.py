"""`yurt var purge`."""

from __future__ import annotations

from yurt.cli.api.variables import Conflict, check_index, write
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import text
from yurt.cli.var.shown import conflict_error


def run(call: Invocation) -> int:
    """Delete a variable for good."""
    path, index = call.args[0], check_index(call)
    query = {} if index is None else {"cas": str(index)}
    try:
        write(call, "DELETE", path, None, **query)
    except Conflict as conflict:
        raise conflict_error(conflict.held, index or 0, doing="purge") from None
    call.screen.line(f'Successfully purged variable "{path}"!')
    return 0


COMMAND = Command(
    "var purge",
    "Delete a variable for good.",
    run,
    (text("check-index", "Delete it only if it was last changed at this index."),),
    (1, 1),
    "<path>",
    "one argument: <path>",
)
