"""`yurt operator raft logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.operator.raft.offline import DETAILS, with_log

if TYPE_CHECKING:
    from yurt.storage.log import LogState
    from yurt.storage.sqlite import SqliteLog


def run(call: Invocation) -> int:
    """The commands in the log of a stopped server, as JSON."""
    from yurt.api.encode import encode_builtins
    from yurt.cli.operator.hidden import shown

    is_pretty = call.flags.is_on("pretty")

    async def show(log: SqliteLog, state: LogState) -> None:
        async for entry in log.entries(max(0, state.first_index - 1)):
            for index, command in enumerate(entry.commands, entry.first_index):
                row = {"Index": index, "Type": type(command).__name__, "Command": shown(command)}
                call.screen.line(encode_builtins(row, pretty=is_pretty).decode().rstrip("\n"))

    with_log(call.args[0], show)
    return 0


COMMAND = Command(
    "operator raft logs",
    "Print the commands in the log of a stopped server as JSON, one object a command.",
    run,
    (switch("pretty", "Print each object over several lines, indented."),),
    (1, 1),
    "<data directory>",
    "one argument: <data directory>",
    details=DETAILS + "\nSecrets of nodes, of volumes and of locks are not printed; variables stay encrypted.\n",
    is_client=False,
)
