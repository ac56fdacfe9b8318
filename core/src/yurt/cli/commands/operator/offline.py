"""`yurt operator raft info`, `logs`, `state` and `recover`: the log in the data directory of a stopped server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from yurt.cli.commands.operator.log_replay import applied, write_snapshot
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number, switch, text
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from pathlib import Path

    from yurt.cli.terminal.screen import Screen
    from yurt.state import Snapshot
    from yurt.storage.log import LogState
    from yurt.storage.log_recovery import DamagedLog
    from yurt.storage.sqlite import SqliteLog

T = TypeVar("T")
SERVER, LOG_FILE, COMMIT_INDEX, ETCD_FOLDERS = "server", "log.db", "commit-index", ("etcd", "log")
DETAILS = """
The directory is that of a server by itself (`data_dir`), which must not run meanwhile. Servers of a cluster keep their
log in etcd: ask one that runs with `yurt agent-info` and `yurt operator raft list-peers`, and take its state with `yurt
operator snapshot save`; `yurt operator raft recover -output FILE` takes it from the directory of one that is stopped.
`yurt operator snapshot state FILE` prints it.
"""


def with_log(data_dir: str, work: Callable[[SqliteLog, LogState], Awaitable[T]]) -> T:
    """The result of work on the log; raises CliError with the reason when it cannot be read."""
    import asyncio
    from pathlib import Path

    path = log_path(Path(data_dir))

    async def read() -> T:
        async with opened(path) as (log, state):
            return await work(log, state)

    try:
        return asyncio.run(read())
    except YurtError as error:
        raise CliError(str(error)) from None


def log_path(data_dir: Path) -> Path:
    """The path of the log file, which may be missing; accepts the server's folder in the directory too."""
    for folder in (data_dir / SERVER, data_dir):
        if (folder / LOG_FILE).is_file() or (folder / COMMIT_INDEX).is_file():
            return folder / LOG_FILE
        if is_of_cluster(folder):
            raise CliError(
                f"{folder} is of a server whose log is in etcd. Ask a running one: `yurt agent-info` and `yurt "
                "operator raft list-peers`; `yurt operator snapshot save FILE` takes the state. From a stopped one "
                f"`yurt operator raft recover -output FILE {data_dir}` takes it. `yurt operator snapshot state FILE` "
                "prints it"
            )
    raise CliError(f"{data_dir} holds no log of a server: {data_dir / SERVER / LOG_FILE} does not exist")


def is_of_cluster(folder: Path) -> bool:
    """Whether a server's folder is that of one whose log is in etcd."""
    return any((folder / name).is_dir() for name in ETCD_FOLDERS)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[SqliteLog, LogState]]:
    """The log, locked for the duration."""
    from yurt.storage.sqlite import SqliteLog

    log = SqliteLog(path)
    state = await log.open()
    try:
        yield log, state
    finally:
        await log.close()


async def state_at(log: SqliteLog, found: LogState, last_index: int) -> Snapshot:
    """The state after the command of an index, 0 for the last one; raises CliError where the log does not have it."""
    from yurt.fsm import snapshot
    from yurt.state import Snapshot

    if last_index > found.last_index:
        raise CliError(f"The log ends at index {found.last_index}, before {last_index}")
    stored = await log.load_snapshot(last_index or None)
    if stored is None and found.first_index > 1:
        raise CliError(f"The log begins at index {found.first_index}, and no snapshot is of {last_index} or before")
    state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
    async for entry in log.entries(state.index):
        state = applied(state, entry, last_index)
    return state


def show_log_range(call: Invocation) -> int:
    """Show the range of a stopped server's log."""
    from pathlib import Path

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


def print_commands(call: Invocation) -> int:
    """The commands in the log of a stopped server, as JSON."""
    from yurt.api.encode import encode_builtins
    from yurt.cli.commands.operator.rows import shown

    is_pretty = call.flags.is_on("pretty")

    async def show(log: SqliteLog, state: LogState) -> None:
        async for entry in log.entries(max(0, state.first_index - 1)):
            for index, command in enumerate(entry.commands, entry.first_index):
                row = {"Index": index, "Type": type(command).__name__, "Command": shown(command)}
                call.screen.line(encode_builtins(row, pretty=is_pretty).decode().rstrip("\n"))

    with_log(call.args[0], show)
    return 0


def print_state(call: Invocation) -> int:
    """The state that the log of a stopped server leads to, as JSON."""
    from yurt.cli.commands.operator.rows import lines

    last_index = call.flags.number("last-index")
    if last_index < 0:
        raise UsageError("-last-index takes an index, 0 for the last one")

    async def read(log: SqliteLog, found: LogState) -> Snapshot:
        return await state_at(log, found, last_index)

    for line in lines(with_log(call.args[0], read), ()):
        call.screen.line(line)
    return 0


def recover_log(call: Invocation) -> int:
    """Report what a damaged log has lost, and with the flag accept the loss."""
    from pathlib import Path

    from yurt.cli.commands.operator.cluster_recovery import recover_cluster
    from yurt.storage.log_recovery import DamagedLog

    data_dir = Path(call.args[0])
    for folder in (data_dir / SERVER, data_dir):
        if is_of_cluster(folder):
            return recover_cluster(call, folder)
    path = log_path(data_dir)
    try:
        log = DamagedLog(path)
    except YurtError as error:
        raise CliError(str(error)) from None
    try:
        if output := call.flags.text("output"):
            return _save(log, call.screen, Path(output))
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
    screen.line(f"given up:       {_loss_text(log.acknowledged, state.index)}")
    if not is_accepted:
        screen.line("Nothing was changed. Copy the folder first, then give these commands up with -accept-loss.")
        return 1
    index, aside = begin_again(log, state)
    screen.line(f"The state of index {state.index} is the snapshot at index {index}, with which the server starts now.")
    screen.line(f"The damaged files are in {aside}.")
    return 0


def _save(log: DamagedLog, screen: Screen, output: Path) -> int:
    state, _ = sound_state(log)
    write_snapshot(state, output)
    screen.line(f"The state of index {state.index} is saved in {output}.")
    return 0


def _loss_text(acknowledged: int | None, sound: int) -> str:
    if acknowledged is None:
        return f"commands acknowledged after index {sound}, if any"
    if acknowledged <= sound:
        return "nothing"
    return f"{acknowledged - sound} commands, {sound + 1} to {acknowledged}"


def sound_state(log: DamagedLog) -> tuple[Snapshot, int]:
    """The state that the newest whole snapshot and the rows after it lead to, and the snapshot's index."""
    from yurt.fsm import snapshot
    from yurt.state import Snapshot

    stored = log.snapshot()
    state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
    begin = state.index
    for entry in log.entries(state.index):
        state = applied(state, entry)
    return state, begin


def begin_again(log: DamagedLog, state: Snapshot) -> tuple[int, Path]:
    """Begin a new log with the state, at an index above every acknowledged one."""
    from yurt.fsm import apply, snapshot
    from yurt.storage.log_recovery import UNKNOWN_RESERVE
    from yurt.structs.commands import DropStagedPlans

    top = state.index + UNKNOWN_RESERVE if log.acknowledged is None else max(state.index, log.acknowledged)
    state = apply(state, DropStagedPlans(rules_version=state.last_rules), index=top + 1).state
    return state.index, log.begin_again(state.index, snapshot.encode(state))


COMMANDS = (
    CliCommand(
        "operator raft info",
        "Show which commands the log of a stopped server holds",
        show_log_range,
        (),
        (1, 1),
        "<data directory>",
        "one argument: <data directory>",
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "operator raft logs",
        "Print the commands in the log of a stopped server as JSON",
        print_commands,
        (switch("pretty", "Print each object over several lines, indented."),),
        (1, 1),
        "<data directory>",
        "one argument: <data directory>",
        details="Each command is one object.\n"
        + DETAILS
        + "\nSecrets of nodes, of volumes and of locks are not printed; variables stay encrypted.\n",
        is_client=False,
    ),
    CliCommand(
        "operator raft state",
        "Print the state of a stopped server as JSON",
        print_state,
        (number("last-index", "The state as it was after the command of this index; 0 for the last one."),),
        (1, 1),
        "<data directory>",
        "one argument: <data directory>",
        details="The state is made from the newest snapshot and the log.\n"
        + DETAILS
        + "\nThe output is that of `yurt operator snapshot state`.\n",
        is_client=False,
    ),
    CliCommand(
        "operator raft recover",
        "Show what the damaged log of a stopped server lost, and give it up",
        recover_log,
        (
            switch("accept-loss", "Start the server with the commands that can be read; the lost ones are gone."),
            text("output", "Save the sound state as a snapshot in this new file; change nothing else."),
        ),
        (1, 1),
        "<data directory>",
        "one argument: <data directory>",
        details="""
A server does not start when something that it had acknowledged is missing from its log, or is damaged. First look for
the lost commands elsewhere: a copy of the folder, or a snapshot (`yurt operator snapshot restore`). This command shows
the indexes of the commands that are lost. With -accept-loss it saves the state that the newest whole snapshot and the
sound rest of the log lead to as a snapshot, moves the damaged files aside and lets the server start with that. What
jobs, nodes and tasks did in the lost commands is forgotten; indexes are not used again.

The directory is the `data_dir` of a server, which must not run meanwhile. That of a server of a cluster is not changed:
its etcd member is read in a copy below TMPDIR, where etcd runs for a moment, and its state goes to the file that
-output names. Begin a new cluster and restore the file there (`yurt operator snapshot restore`) when most servers have
lost their data. The file holds no root keys: keep the folder `server/keystore`.
""",
        is_client=False,
    ),
)
