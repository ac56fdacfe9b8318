"""`yurt operator raft recover`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch
from yurt.cli.operator.raft.offline import log_path
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from yurt.cli.terminal.screen import Screen
    from yurt.state import Snapshot
    from yurt.storage.log_recovery import DamagedLog


def run(call: Invocation) -> int:
    """Say what a damaged log has lost, and give it up when asked to."""
    from yurt.storage.log_recovery import DamagedLog

    path = log_path(Path(call.args[0]))
    try:
        log = DamagedLog(path)
    except YurtError as error:
        raise CliError(str(error)) from None
    try:
        return _recover(log, call.screen, is_accepted=call.flags.is_on("accept-loss"))
    except (YurtError, OSError) as error:
        raise CliError(str(error)) from None
    finally:
        log.close()


def _recover(log: DamagedLog, screen: Screen, *, is_accepted: bool) -> int:
    state, snapshot_index = sound_state(log)
    if not log.problem and not log.damage:
        screen.line(f"The log {log.path} is whole up to index {state.index}; there is nothing to recover.")
        return 0
    screen.line(f"path:           {log.path}")
    screen.line(f"damage:         {log.damage or log.problem}")
    screen.line(f"acknowledged:   {'unknown' if log.acknowledged is None else log.acknowledged}")
    screen.line(f"snapshot index: {snapshot_index}")
    screen.line(f"sound up to:    {state.index}")
    screen.line(f"given up:       {_given_up(log.acknowledged, state.index)}")
    if not is_accepted:
        screen.line("Nothing was changed. Copy the folder first, then give these commands up with -accept-loss.")
        return 1
    index, aside = begin_again(log, state)
    screen.line(f"The state of index {state.index} is the snapshot at index {index}, with which the server starts now.")
    screen.line(f"The damaged files are in {aside}.")
    return 0


def _given_up(acknowledged: int | None, sound: int) -> str:
    if acknowledged is None:
        return f"what was acknowledged after index {sound}, if anything"
    if acknowledged <= sound:
        return "nothing"
    return f"{acknowledged - sound} commands, {sound + 1} to {acknowledged}"


def sound_state(log: DamagedLog) -> tuple[Snapshot, int]:
    """The state that the newest whole snapshot and the rows after it lead to, and the snapshot's index."""
    from yurt.fsm import apply, snapshot
    from yurt.state import Snapshot

    stored = log.snapshot()
    state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
    begin = state.index
    for entry in log.entries(state.index):
        for index, command in enumerate(entry.commands, entry.first_index):
            if index > state.index:
                state = apply(state, command, index=index).state
    return state, begin


def begin_again(log: DamagedLog, state: Snapshot) -> tuple[int, Path]:
    """Make the state the beginning of a new log, at an index above all that was acknowledged."""
    from yurt.fsm import apply, snapshot
    from yurt.storage.log_recovery import UNKNOWN_RESERVE
    from yurt.structs.commands import DropStagedPlans

    top = state.index + UNKNOWN_RESERVE if log.acknowledged is None else max(state.index, log.acknowledged)
    state = apply(state, DropStagedPlans(), index=top + 1).state
    return state.index, log.begin_again(state.index, snapshot.encode(state))


COMMAND = Command(
    "operator raft recover",
    "Say what the damaged log of a stopped server has lost, and give it up.",
    run,
    (switch("accept-loss", "Give the lost commands up and have the server start with what is sound."),),
    (1, 1),
    "<data directory>",
    "one argument: <data directory>",
    details="""
A server does not start when something that it had acknowledged is missing from its log, or is damaged. First look for
the lost commands elsewhere: a copy of the folder, or a snapshot (`yurt operator snapshot restore`). This command shows
the indexes of the commands that are lost. With -accept-loss it saves the state that the newest whole snapshot and the
sound rest of the log lead to as a snapshot, moves the damaged files aside and lets the server start with that. What
jobs, nodes and tasks did in the lost commands is forgotten; indexes are not used again.

The directory is that of a server by itself (`data_dir`), which must not run meanwhile.
""",
    is_client=False,
)
