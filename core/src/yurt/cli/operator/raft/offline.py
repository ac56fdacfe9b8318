"""The command log in the data directory of a server that does not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from yurt.cli.errors import CliError
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from yurt.state import Snapshot
    from yurt.storage.log import LogState
    from yurt.storage.sqlite import SqliteLog

T = TypeVar("T")
SERVER, LOG_FILE, COMMIT_INDEX, ETCD_FOLDERS = "server", "log.db", "commit-index", ("etcd", "log")
DETAILS = """
The directory is that of a server by itself (`data_dir`), which must not run meanwhile. Servers of a cluster keep their
log in etcd, which only a running one reads: ask it with `yurt agent-info` and `yurt operator raft list-peers`, and take
its state with `yurt operator snapshot save`, which `yurt operator snapshot state` prints.
"""


def with_log(data_dir: str, work: Callable[[SqliteLog, LogState], Awaitable[T]]) -> T:
    """What the work makes of the log; raises CliError with the reason where there is none to read."""
    path = log_path(Path(data_dir))

    async def read() -> T:
        async with opened(path) as (log, state):
            return await work(log, state)

    try:
        return asyncio.run(read())
    except YurtError as error:
        raise CliError(str(error)) from None


def log_path(data_dir: Path) -> Path:
    """The file of the log, which may be gone; the directory may also be named by the server's own folder in it."""
    for folder in (data_dir / SERVER, data_dir):
        if (folder / LOG_FILE).is_file() or (folder / COMMIT_INDEX).is_file():
            return folder / LOG_FILE
        if any((folder / name).is_dir() for name in ETCD_FOLDERS):
            raise CliError(
                f"{folder} is of a server whose log is in etcd, which only a running server reads. Ask one: "
                "`yurt agent-info` and `yurt operator raft list-peers`; `yurt operator snapshot save FILE` takes the "
                "state, and `yurt operator snapshot state FILE` prints it"
            )
    raise CliError(f"{data_dir} holds no log of a server: {data_dir / SERVER / LOG_FILE} does not exist")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[SqliteLog, LogState]]:
    """The log, nobody else's meanwhile."""
    from yurt.storage.sqlite import SqliteLog

    log = SqliteLog(path)
    state = await log.open()
    try:
        yield log, state
    finally:
        await log.close()


async def state_at(log: SqliteLog, found: LogState, last_index: int) -> Snapshot:
    """The state after the command of an index, 0 for the last one; raises CliError where the log does not have it."""
    from yurt.fsm import apply, snapshot
    from yurt.state import Snapshot

    if last_index > found.last_index:
        raise CliError(f"The log ends at index {found.last_index}, before {last_index}")
    stored = await log.load_snapshot(last_index or None)
    if stored is None and found.first_index > 1:
        raise CliError(f"The log begins at index {found.first_index}, and no snapshot is of {last_index} or before")
    state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
    async for entry in log.entries(state.index):
        for index, command in enumerate(entry.commands, entry.first_index):
            if index > state.index and (not last_index or index <= last_index):
                state = apply(state, command, index=index).state
    return state
