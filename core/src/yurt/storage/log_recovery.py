"""Recovers the intact part of a damaged SQLite log and starts a new log from it.

Sound is the newest whole snapshot and the rows that follow on it without a break. The new beginning is a snapshot at an
index above all that was ever acknowledged: indexes that clients have seen are not given to other commands. The damaged
files are moved aside, not removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Conflict
from yurt.storage import commit_index, snapshot_files
from yurt.storage.commit_index import Mark
from yurt.storage.data_dir import DataDir, sync_folder
from yurt.storage.log import Entry
from yurt.storage.log_rows import PAGE_ROWS, Damaged, RowChecker, columns_of, entry_of, page, read_only
from yurt.storage.sqlite_opening import FORMATS, SNAPSHOTS, check

UNKNOWN_RESERVE: Final = 1000
"""The number of indexes skipped when the commit index is damaged too: this many acknowledged commands may be lost."""


class DamagedLog:
    """The log in a stopped server's folder, in any condition; unchanged until `begin_again`."""

    def __init__(self, path: Path) -> None:
        """Lock the folder; raises Conflict when another process has locked it."""
        self.path = path
        self.damage = ""
        """The reason why `entries` ended early; "" if it has read all rows."""
        self._folder = DataDir(path.parent, formats=FORMATS)
        self.problem = self._problem()
        self.acknowledged = self._acknowledged()

    def close(self) -> None:
        """Unlock the folder."""
        self._folder.close()

    def snapshot(self) -> tuple[int, Iterable[bytes]] | None:
        """The newest intact snapshot."""
        return snapshot_files.load(self.path.parent / SNAPSHOTS)

    def entries(self, after: int) -> Iterator[Entry]:
        """The consecutive entries after an index, up to the first that is missing, damaged or unreadable."""
        checker = RowChecker(after + 1)
        try:
            yield from self._sound(checker)
        except Damaged as error:
            self.damage = f"the entry at index {error.index} is damaged: {error.why}"
        except sqlite3.DatabaseError as error:
            self.damage = f"the database can not be read from index {checker.expected} on: {error}"

    def _sound(self, checker: RowChecker) -> Iterator[Entry]:
        if not self.path.exists():
            return
        with closing(read_only(self.path)) as connection:
            columns = columns_of(connection)
            while columns:
                rows = page(connection, start=checker.expected, columns=columns)
                yield from (entry_of(row) for row in rows if checker.take(row))
                if len(rows) < PAGE_ROWS:
                    return

    def begin_again(self, index: int, chunks: Iterable[bytes]) -> Path:
        """Start a new log with a state as its snapshot at an index; returns the folder with the old files.

        The snapshot comes first: a crash in between leaves a log that ends below it, and starts again from it.
        """
        folder = self.path.parent
        snapshot_files.save(folder / SNAPSHOTS, index, chunks)
        commit_index.create(folder, Mark(index=index))
        aside = folder / f"damaged-{index}"
        aside.mkdir(exist_ok=True, mode=0o700)
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
            if (folder / name).exists():
                (folder / name).replace(aside / name)
        sync_folder(folder)
        self._folder.has_format()
        return aside

    def _problem(self) -> str:
        """The reason why a server would refuse to start; "" when it would start."""
        try:
            check(self._folder, self.path)
        except Conflict as error:
            return str(error)
        return ""

    def _acknowledged(self) -> int | None:
        try:
            mark = commit_index.load(self.path.parent)
        except Conflict:
            return None
        return None if mark is None else mark.index
