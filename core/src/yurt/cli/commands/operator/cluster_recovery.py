"""`yurt operator raft recover` for a server of a cluster: the last state that its files hold, as a snapshot file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from yurt.cli.commands.operator.log_replay import applied, write_snapshot
from yurt.cli.errors import CliError, UsageError
from yurt.sdk.errors import Conflict, YurtError

if TYPE_CHECKING:
    from yurt.cli.declaration import Invocation
    from yurt.cli.terminal.screen import Screen
    from yurt.state import Snapshot
    from yurt.storage.etcd.reading import EntryReader
    from yurt.storage.etcd.server_folder import ServerFolder

LOG_FOLDER, MEMBER_FOLDER = "log", "etcd"


class RecoveredState(NamedTuple):
    """The recovered state, the files it comes from, and the damage found ("" for none)."""

    state: Snapshot
    snapshot_index: int
    log_end: int
    damage: str


def recover_cluster(call: Invocation, folder: Path) -> int:
    """Report the state in a stopped server's files, and write it to the file that `-output` names."""
    output = call.flags.text("output")
    if call.flags.is_on("accept-loss"):
        raise UsageError(
            "-accept-loss is for the log of a server by itself. Save what this server of a cluster knows with -output "
            "FILE, begin a new cluster, and restore the file there"
        )
    try:
        last_index, found = asyncio.run(_recover(folder))
        _print(call.screen, folder, last_index, found)
        if output:
            write_snapshot(found.state, Path(output))
    except (YurtError, OSError) as error:
        raise CliError(str(error)) from None
    if output:
        call.screen.line(f"The state of index {found.state.index} is saved in {output}.")
        return 0
    call.screen.line("Nothing was changed. Save this state as a snapshot with -output FILE.")
    return 1


async def _recover(folder: Path) -> tuple[int | None, RecoveredState]:
    import logging

    from yurt.runtime.env import RealEnv
    from yurt.storage import commit_index
    from yurt.storage.etcd.server_folder import ServerFolder
    from yurt.storage.etcd.stopped_member import read_stopped

    if not (folder / MEMBER_FOLDER / "data").is_dir():
        raise Conflict(
            f"{folder} has no etcd member of its own: its cluster uses an etcd that stands by itself, whose own tools "
            "save and restore it"
        )
    # What etcd says while it gives its cluster up is for agents' logs; without a handler it would go to stderr.
    logging.getLogger("yurt.storage").addHandler(logging.NullHandler())
    own = ServerFolder(folder / LOG_FOLDER)
    own.lock()
    try:
        try:
            mark = commit_index.load(own.path)
        except Conflict:
            mark = None
        async with read_stopped(folder / MEMBER_FOLDER, env=RealEnv()) as log:
            found = await _replay(own, log.reader, log.damage)
    finally:
        own.close()
    return None if mark is None else mark.index, found


async def _replay(folder: ServerFolder, reader: EntryReader, damage: str) -> RecoveredState:
    """The newest whole snapshot with the entries after it, up to the first one that cannot be read."""
    from yurt.fsm import apply, snapshot
    from yurt.state import Snapshot
    from yurt.structs.commands import DropStagedPlans

    stored = folder.load_snapshot()
    state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
    begin, end = state.index, 0
    try:
        end = (await reader.head()).index
        async for entry in reader.read(reader.cursor(state.index)):
            state = applied(state, entry)
    except YurtError as error:
        damage = damage or str(error)
    if not state.index:
        raise Conflict(f"nothing can be recovered: there is no whole snapshot, and {damage or 'the log is empty'}")
    return RecoveredState(
        apply(state, DropStagedPlans(rules_version=state.last_rules), index=state.index + 1).state, begin, end, damage
    )


def _print(screen: Screen, folder: Path, last_index: int | None, found: RecoveredState) -> None:
    sound = found.state.index - 1
    screen.line(f"path:           {folder}")
    screen.line(f"damage:         {found.damage or 'none that is known'}")
    screen.line(f"known:          {'unknown' if last_index is None else last_index}")
    screen.line(f"snapshot index: {found.snapshot_index}")
    screen.line(f"log ends at:    {found.log_end}")
    screen.line(f"sound up to:    {sound}")
    screen.line(f"given up:       {_loss_text(last_index, sound)}")


def _loss_text(last_index: int | None, sound: int) -> str:
    if last_index is not None and last_index > sound:
        return f"{last_index - sound} commands that this server knew, {sound + 1} to {last_index}, and what followed"
    return f"what followed index {sound}, if anything: another server that is left may have more, try each of them"
