"""`yurt operator raft info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from yurt.cli.command import Command, Invocation
from yurt.cli.operator.raft.offline import DETAILS, log_path, with_log

if TYPE_CHECKING:
    from yurt.storage.log import LogState
    from yurt.storage.sqlite import SqliteLog


def run(call: Invocation) -> int:
    """What the log of a stopped server holds."""

    async def facts(_: SqliteLog, state: LogState) -> LogState:
        return state

    path = log_path(Path(call.args[0]))
    found = with_log(call.args[0], facts)
    length = found.last_index - found.first_index + 1 if found.first_index else 0
    call.screen.line(f"path:           {path}")
    call.screen.line(f"length:         {length}")
    call.screen.line(f"first index:    {found.first_index}")
    call.screen.line(f"last index:     {found.last_index}")
    call.screen.line(f"snapshot index: {found.snapshot_index}")
    return 0


COMMAND = Command(
    "operator raft info",
    "Show which commands the log of a stopped server holds.",
    run,
    (),
    (1, 1),
    "<data directory>",
    "one argument: <data directory>",
    details=DETAILS,
    is_client=False,
)
