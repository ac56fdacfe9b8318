"""`yurt operator raft state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number
from yurt.cli.operator.raft.offline import DETAILS, state_at, with_log

if TYPE_CHECKING:
    from yurt.state import Snapshot
    from yurt.storage.log import LogState
    from yurt.storage.sqlite import SqliteLog


def run(call: Invocation) -> int:
    """The state that the log of a stopped server leads to, as JSON."""
    from yurt.cli.operator.state_text import lines

    last_index = call.flags.number("last-index")
    if last_index < 0:
        raise UsageError("-last-index takes an index, 0 for the last one")

    async def read(log: SqliteLog, found: LogState) -> Snapshot:
        return await state_at(log, found, last_index)

    for line in lines(with_log(call.args[0], read), ()):
        call.screen.line(line)
    return 0


COMMAND = Command(
    "operator raft state",
    "Print the state of a stopped server as JSON, made from its newest snapshot and its log.",
    run,
    (number("last-index", "The state as it was after the command of this index; 0 for the last one."),),
    (1, 1),
    "<data directory>",
    "one argument: <data directory>",
    details=DETAILS + "\nThe output is that of `yurt operator snapshot state`.\n",
    is_client=False,
)
