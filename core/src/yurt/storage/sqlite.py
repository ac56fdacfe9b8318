"""A command log on disk: SQLite in its own folder, together with the commit index and snapshot files.

The folder holds the database, the commit index, `snapshots/`, a lock and a format file. An append is answered when its
row is durable and after that the commit index. What a crash tore off was never acknowledged, and SQLite's journal drops
it; a log that ends below the commit index, or whose rows are damaged, has lost acknowledged entries, and the log
refuses to go on without it (`sqlite_opening`, `log_rows`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.storage import log_rows, snapshot_files, sqlite_opening
from yurt.storage.commit_index import CommitIndex, Mark
from yurt.storage.data_dir import DataDir
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogBroken, LogState, WithoutQuota
from yurt.storage.log_rows import COLUMNS, PAGE_ROWS, SCHEMA, Damaged, RowChecker
from yurt.storage.sqlite_worker import SqliteWorker
from yurt.structs.commands import AnyCommand

TRIM_ROWS = 500
"""The number of rows deleted in one transaction, so that appends can run in between."""
SCRUB_BYTES_PER_S = 8 * 1024 * 1024
"""The rate of verifying stored entries, in bytes per second, low enough to leave the disk to appends."""

_encoder = msgspec.msgpack.Encoder()


class SqliteLog(WithoutQuota):
    """The log of a single server: the database file at `path`, in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: DataDir | None = None
        self._worker: SqliteWorker | None = None
        self._commit_index: CommitIndex | None = None
        self._last = self._recorded = Mark()
        """The end of the log and the commit index; once the log is open, only the worker's thread changes them."""
        self._ended = asyncio.Event()

    async def open(self) -> LogState:
        """Lock the folder; raises Conflict when it is in use, has lost entries or has another format version."""
        assert self._worker is None, "the log is open already"
        self._folder = DataDir(self._path.parent, formats=sqlite_opening.FORMATS)
        try:
            found = await asyncio.to_thread(sqlite_opening.check, self._folder, self._path)
            self._commit_index = CommitIndex(self._path.parent)
            self._worker = SqliteWorker(self._path, schema=SCHEMA, name="command-log", on_commit=self._record)
            await self._worker.call(_add_chain)
        except BaseException:
            await self.close()
            raise
        self._ended = asyncio.Event()
        rows, snapshot = found.rows, found.snapshot
        self._recorded = found.acknowledged
        self._last = Mark(index=rows.last, chain=rows.chain) if rows.last >= snapshot else Mark(index=snapshot)
        return LogState(last_index=self._last.index, first_index=rows.first, snapshot_index=snapshot)

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Make the commands durable, all or none; raises Conflict when `first_index` is not the next one.

        Raises LogBroken when the disk failed: the outcome is unknown and the log takes nothing more.
        """
        if not commands:
            return
        data = _encoder.encode(encoded or commands)

        def insert(connection: sqlite3.Connection) -> None:
            last = self._last
            if first_index != last.index + 1:
                raise Conflict(f"the next index of the command log is {last.index + 1}, not {first_index}")
            digest = log_rows.row_digest(first_index, data)
            chain = log_rows.chain_digest(last.chain, first_index, digest)
            row = (first_index, len(commands), data, digest, chain)
            connection.execute(f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)
            self._last = Mark(index=last.index + len(commands), chain=chain)

        try:
            await self._open_worker.call(insert, is_statement=True)
        except Unavailable as error:
            self._ended.set()
            raise LogBroken(str(error)) from None

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`; raises Conflict at a damaged or missing one."""
        position, checker = after + 1, RowChecker(after + 1)
        while True:
            page = await self._open_worker.call(partial(log_rows.page, start=position))
            for row in page:
                try:
                    entry = log_rows.entry_of(row) if checker.take(row) else None
                except Damaged as error:
                    raise self._broken(error) from error
                if entry is not None:
                    yield entry
            if len(page) < PAGE_ROWS:
                break
            position = page[-1][0] + page[-1][1]

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The stored entries; no other process writes to this log."""
        ended = self._ended
        async for entry in self.entries(after):
            yield entry
        await ended.wait()

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Lead from the start, until the disk fails or the log is closed."""
        ended = self._ended
        yield Leadership(is_leader=True)
        await ended.wait()
        if self._worker is not None:
            yield Leadership(is_leader=False)

    async def resign(self, to: str = "") -> None:
        """No effect without a name, since other servers do not exist; raises Invalid for a named one."""
        if to:
            raise Invalid(f'server "{to}" cannot lead: this server is the only one')

    @property
    def has_other_servers(self) -> bool:
        """False: no other server uses this log."""
        return False

    async def confirm(self) -> None:
        """Succeeds until the disk fails or the log is closed, then raises Unavailable."""
        if self._ended.is_set():
            raise Unavailable("the command log is closed or its disk failed")

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index`; the chunks are encoded in another thread."""
        await asyncio.to_thread(snapshot_files.save, self._snapshots, index, chunks)

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot with a valid digest."""
        return await asyncio.to_thread(snapshot_files.load, self._snapshots, up_to)

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Delete commands more than `keep` below an index that two intact snapshots cover.

        Should the newest snapshot turn out to be damaged, the one before it and the log still lead to the same state.
        """
        fallback = await asyncio.to_thread(snapshot_files.fallback_index, self._snapshots)
        bound = min(below - keep, fallback)
        while await self._open_worker.call(partial(_trim, bound=bound)) == TRIM_ROWS:
            pass

    async def scrub(self) -> str:
        """Verify all entries and snapshots slowly; returns a description of the damage, "" for none."""
        for snapshot in await asyncio.to_thread(snapshot_files.damaged, self._snapshots):
            return f"the snapshot {snapshot} is damaged"
        checker = RowChecker(0)
        try:
            while True:
                size = await asyncio.to_thread(log_rows.verify_page, self._path, checker)
                if size is None:
                    return ""
                await asyncio.sleep(size / SCRUB_BYTES_PER_S)
        except Damaged as error:
            return str(error)
        except sqlite3.DatabaseError as error:
            return f"the database {self._path} can not be read: {error}"

    async def close(self) -> None:
        """Unlock the folder; may be called again."""
        worker, self._worker = self._worker, None
        self._ended.set()
        if worker is not None:
            await worker.close()
        if self._commit_index is not None:
            self._commit_index.close()
            self._commit_index = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _record(self) -> None:
        """Record a commit before it is acknowledged; called in the worker's thread."""
        if self._last != self._recorded and self._commit_index is not None:
            self._commit_index.write(self._last)
            self._recorded = self._last

    @property
    def _snapshots(self) -> Path:
        return self._path.parent / "snapshots"

    @property
    def _open_worker(self) -> SqliteWorker:
        if self._worker is None:
            raise Conflict("the command log is closed")
        return self._worker

    def _broken(self, error: Damaged) -> Conflict:
        last = self._recorded.index
        which = f"{error.index} to {last}" if error.index < last else f"from {error.index} on"
        return Conflict(
            f"the log {self._path} is broken at index {error.index}: {error.why}; commands {which} are lost. "
            f"{sqlite_opening.advice(self._path)}"
        )


def _add_chain(connection: sqlite3.Connection) -> None:
    """Add the chain column to a table of an earlier version."""
    if "chain" not in [row[1] for row in connection.execute("PRAGMA table_info(entries)")]:
        connection.execute("ALTER TABLE entries ADD COLUMN chain BLOB")


def _trim(connection: sqlite3.Connection, *, bound: int) -> int:
    return connection.execute(
        "DELETE FROM entries WHERE first_index IN "
        "(SELECT first_index FROM entries WHERE first_index + count - 1 < ? ORDER BY first_index LIMIT ?)",
        (bound, TRIM_ROWS),
    ).rowcount
