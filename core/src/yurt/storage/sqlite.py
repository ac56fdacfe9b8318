"""A command log on disk: SQLite in a folder of its own, with snapshot files beside it.

The folder holds the database, `snapshots/`, a lock and a format file. A row is what one append wrote: the index of
its first command, how many there are, the commands, and a digest. What a crash tore off was never acknowledged, and
SQLite's journal drops it; a row whose digest does not fit was acknowledged, so the log refuses to go on without it.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.storage import snapshot_files
from yurt.storage.data_dir import DataDir
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogBroken, LogState, WithoutQuota
from yurt.storage.sqlite_worker import SqliteWorker
from yurt.structs.commands import AnyCommand, decode_commands

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    first_index INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    commands BLOB NOT NULL,
    digest BLOB NOT NULL
)
"""
PAGE_ROWS = 32
TRIM_ROWS = 500
"""Rows deleted in one transaction, so that appends get their turn."""

_encoder = msgspec.msgpack.Encoder()
Row = tuple[int, int, bytes, bytes]


class SqliteLog(WithoutQuota):
    """The log of a single server: the database file at `path`, in a folder that belongs to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: DataDir | None = None
        self._worker: SqliteWorker | None = None
        self._last_index = 0
        self._ended = asyncio.Event()

    async def open(self) -> LogState:
        """Take the folder; raises Conflict when it is in use, broken or of another format version."""
        assert self._worker is None, "the log is open already"
        self._folder = DataDir(self._path.parent)
        try:
            self._worker = SqliteWorker(self._path, schema=SCHEMA, name="command-log")
            first, last = await self._worker.call(_bounds)
            snapshot = await asyncio.to_thread(snapshot_files.newest_index, self._snapshots)
            if first > snapshot + 1:
                raise Conflict(
                    f"the log {self._path} begins at index {first} and no whole snapshot reaches up to it; "
                    "restore its folder from a copy, or move it away to start empty"
                )
        except BaseException:
            await self.close()
            raise
        self._ended = asyncio.Event()
        self._last_index = max(last, snapshot)
        return LogState(last_index=self._last_index, first_index=first, snapshot_index=snapshot)

    async def append(self, first_index: int, commands: Sequence[AnyCommand]) -> None:
        """Make the commands durable, all or none; raises Conflict when `first_index` is not the next one.

        Raises LogBroken when the disk failed: the outcome is unknown and the log takes nothing more.
        """
        if not commands:
            return
        data = _encoder.encode(commands)

        def insert(connection: sqlite3.Connection) -> None:
            if first_index != self._last_index + 1:
                raise Conflict(f"the next index of the command log is {self._last_index + 1}, not {first_index}")
            row = (first_index, len(commands), data, _digest(first_index, data))
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)
            self._last_index += len(commands)

        try:
            await self._open_worker.call(insert)
        except Unavailable as error:
            self._ended.set()
            raise LogBroken(str(error)) from None

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries that hold a command above `after`; raises Conflict at one that is broken or missing."""
        position, expected = after + 1, after + 1
        while True:
            page = await self._open_worker.call(partial(_page, start=position))
            for row in page:
                entry = self._entry(row)
                if entry.last_index < expected:
                    continue
                if entry.first_index > expected:
                    raise self._broken(expected, "it is missing")
                expected = entry.last_index + 1
                yield entry
            if len(page) < PAGE_ROWS:
                return
            position = page[-1][0] + page[-1][1]

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries that there are; nobody else appends."""
        ended = self._ended
        async for entry in self.entries(after):
            yield entry
        await ended.wait()

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Leads from the start; lost when the disk failed; ends when the log is closed."""
        ended = self._ended
        yield Leadership(is_leader=True)
        await ended.wait()
        if self._worker is not None:
            yield Leadership(is_leader=False)

    async def resign(self, to: str = "") -> None:
        """There is no other server; raises Invalid when one is named."""
        if to:
            raise Invalid(f'there is no server "{to}" to lead: this one keeps the log by itself')

    async def confirm(self) -> None:
        """Leads until the disk fails or the log is closed; raises Unavailable afterwards."""
        if self._ended.is_set():
            raise Unavailable("the command log is closed or its disk failed")

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index`; the chunks are made in another thread."""
        await asyncio.to_thread(snapshot_files.save, self._snapshots, index, chunks)

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot whose digest fits."""
        return await asyncio.to_thread(snapshot_files.load, self._snapshots, up_to)

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Forget commands that lie more than `keep` below, and below the newest snapshot."""
        snapshot = await asyncio.to_thread(snapshot_files.newest_index, self._snapshots)
        bound = min(below - keep, snapshot)
        while await self._open_worker.call(partial(_trim, bound=bound)) == TRIM_ROWS:
            pass

    async def close(self) -> None:
        """Give the folder up; calling it again does nothing."""
        worker, self._worker = self._worker, None
        self._ended.set()
        if worker is not None:
            await worker.close()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    @property
    def _snapshots(self) -> Path:
        return self._path.parent / "snapshots"

    @property
    def _open_worker(self) -> SqliteWorker:
        if self._worker is None:
            raise Conflict("the command log is closed")
        return self._worker

    def _entry(self, row: Row) -> Entry:
        first_index, count, data, digest = row
        if digest != _digest(first_index, data):
            raise self._broken(first_index, "its content does not fit its digest")
        try:
            entry = Entry(first_index=first_index, commands=decode_commands(data))
        except msgspec.DecodeError as error:
            raise self._broken(
                first_index, f"this version can not read it ({error}); use the one that wrote it"
            ) from error
        if len(entry.commands) != count:
            raise self._broken(first_index, f"it has {len(entry.commands)} commands, not {count}")
        return entry

    def _broken(self, index: int, why: str) -> Conflict:
        return Conflict(
            f"the log {self._path} is broken at index {index}: {why}; restore its folder from a copy, "
            "or move it away to start empty"
        )


def _digest(first_index: int, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8, key=first_index.to_bytes(8, "big")).digest()


def _bounds(connection: sqlite3.Connection) -> tuple[int, int]:
    first = connection.execute("SELECT first_index FROM entries ORDER BY first_index LIMIT 1").fetchone()
    last = connection.execute(
        "SELECT first_index + count - 1 FROM entries ORDER BY first_index DESC LIMIT 1"
    ).fetchone()
    return (first[0], last[0]) if first and last else (0, 0)


def _page(connection: sqlite3.Connection, *, start: int) -> list[Row]:
    return connection.execute(
        "SELECT first_index, count, commands, digest FROM entries WHERE first_index >= "
        "(SELECT COALESCE(MAX(first_index), 0) FROM entries WHERE first_index <= ?) ORDER BY first_index LIMIT ?",
        (start, PAGE_ROWS),
    ).fetchall()


def _trim(connection: sqlite3.Connection, *, bound: int) -> int:
    return connection.execute(
        "DELETE FROM entries WHERE first_index IN "
        "(SELECT first_index FROM entries WHERE first_index + count - 1 < ? ORDER BY first_index LIMIT ?)",
        (bound, TRIM_ROWS),
    ).rowcount
