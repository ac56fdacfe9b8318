"""Common code of the commands on a stopped server's log: apply commands to a state, save the state as a snapshot
file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from yurt.state import Snapshot
    from yurt.storage.log import Entry


def applied(state: Snapshot, entry: Entry, last_index: int = 0) -> Snapshot:
    """The state after those commands of an entry that it does not have yet, up to an index (0: all)."""
    from yurt.fsm import apply

    for index, command in enumerate(entry.commands, entry.first_index):
        if index > state.index and (not last_index or index <= last_index):
            state = apply(state, command, index=index).state
    return state


def write_snapshot(state: Snapshot, path: Path) -> None:
    """Save a state as `yurt operator snapshot save` does, in a new file; raises OSError."""
    import os

    from yurt import __version__
    from yurt.storage.archive import write_archive

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        write_archive(state, file, version=__version__)
        file.flush()
        os.fsync(descriptor)
