"""The rows of a log in SQLite, and the check of their integrity and order.

A row is what one append wrote: the index of its first command, how many there are, the commands, a digest of them, and
the chain digest, which covers the row's digest and the chain digest of the row before: it stands for all the history
that led to the row. Rows of a version before the chain have none; the chain begins with the first row that has one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.errors import Conflict
from yurt.storage.commit_index import CHAIN_BYTES
from yurt.storage.log import Entry
from yurt.structs.commands import decode_commands

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    first_index INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    commands BLOB NOT NULL,
    digest BLOB NOT NULL,
    chain BLOB
)
"""
COLUMNS: Final = "first_index, count, commands, digest, chain"
PAGE_ROWS: Final = 32
INDEX_END: Final = 1 << 62
Row = tuple[int, int, bytes, bytes, bytes | None]


class Damaged(Conflict):
    """The log is damaged from an index on."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"the log is damaged at index {index}: {why}")
        self.index = index
        self.why = why


class Extent(NamedTuple):
    """The extent of a database: first and last index (0: none), and the chain digests of the last row and at the
    requested index."""

    first: int = 0
    last: int = 0
    chain: bytes = b""
    at_mark: bytes | None = None
    """The chain digest of the row that ends at the requested index; None if no row ends there."""


def row_digest(first_index: int, data: bytes) -> bytes:
    """The digest of a row's commands and position."""
    return hashlib.blake2b(data, digest_size=8, key=first_index.to_bytes(8, "big")).digest()


def chain_digest(before: bytes, first_index: int, digest: bytes) -> bytes:
    """The digest of a row and all rows before it."""
    return hashlib.blake2b(first_index.to_bytes(8, "big") + digest + before, digest_size=CHAIN_BYTES).digest()


class RowChecker:
    """Checks rows in order; raises Damaged for one that is damaged or does not continue its predecessor."""

    def __init__(self, expected: int) -> None:
        self.begin(expected)

    def begin(self, expected: int) -> None:
        """Begin with the row of an index; its predecessors are not checked."""
        self.expected = expected
        self._before: bytes | None = None

    def take(self, row: Row) -> bool:
        """Check a row; returns whether it reaches the expected index, and advances that."""
        if not is_row(row):
            raise Damaged(self.expected, "a row of the database is malformed")
        first_index, count, data, digest, chain = row
        if first_index + count <= self.expected:
            return False
        if first_index > self.expected:
            raise Damaged(self.expected, "it is missing")
        if digest != row_digest(first_index, data):
            raise Damaged(first_index, "its content does not fit its digest")
        if self._before is not None and chain != chain_digest(self._before, first_index, digest):
            is_before_the_chain = chain is None and not self._before
            if not is_before_the_chain:
                raise Damaged(first_index, "it does not follow on the entry before it")
        self._before = chain or b""
        self.expected = first_index + count
        return True


def is_row(row: tuple[object, ...]) -> bool:
    """Whether the columns have their declared types, which a damaged page may break."""
    *numbers, data, digest, chain = row
    return all(isinstance(each, int) and 0 <= each < INDEX_END for each in numbers) and (
        isinstance(data, bytes) and isinstance(digest, bytes) and (chain is None or isinstance(chain, bytes))
    )


def entry_of(row: Row) -> Entry:
    """The row as an entry; raises Damaged when this version cannot read it."""
    first_index, count, data, _, _ = row
    try:
        entry = Entry(first_index=first_index, commands=decode_commands(data))
    except msgspec.DecodeError as error:
        raise Damaged(first_index, f"this version can not read it ({error}); use the one that wrote it") from error
    if len(entry.commands) != count:
        raise Damaged(first_index, f"it has {len(entry.commands)} commands, not {count}")
    return entry


def read_only(path: Path) -> sqlite3.Connection:
    """A read-only connection, which does not even checkpoint when it is closed as the last one."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def extent(path: Path, mark: int) -> Extent:
    """The extent of a database file, opened read-only; raises sqlite3.DatabaseError if it is unreadable."""
    if not path.exists():
        return Extent()
    with closing(read_only(path)) as connection:
        columns = columns_of(connection)
        if not columns:
            return Extent()
        chain = columns.rpartition(" ")[2]
        ends = f"SELECT first_index, count, x'', x'', {chain} FROM entries ORDER BY first_index"
        first = connection.execute(f"{ends} LIMIT 1").fetchone()
        last = connection.execute(f"{ends} DESC LIMIT 1").fetchone()
        marked = connection.execute(
            f"{ends.replace('ORDER', 'WHERE first_index <= ? ORDER')} DESC LIMIT 1", (mark,)
        ).fetchone()
    if first is None or last is None:
        return Extent()
    if not all(is_row(row) for row in (first, last, marked) if row is not None):
        raise sqlite3.DatabaseError("a row of it is not an entry of the log")
    is_end = marked is not None and marked[0] + marked[1] - 1 == mark
    return Extent(first[0], last[0] + last[1] - 1, last[4] or b"", (marked[4] or b"") if is_end else None)


def columns_of(connection: sqlite3.Connection) -> str:
    """The columns of a row, also in a database without the chain; "" if the table is missing."""
    names = [row[1] for row in connection.execute("PRAGMA table_info(entries)")]
    if not names:
        return ""
    return COLUMNS if "chain" in names else COLUMNS.replace("chain", "NULL")


def page(connection: sqlite3.Connection, *, start: int, columns: str = COLUMNS) -> list[Row]:
    """Rows from the one that contains an index on."""
    return connection.execute(
        f"SELECT {columns} FROM entries WHERE first_index >= "
        "(SELECT COALESCE(MAX(first_index), 0) FROM entries WHERE first_index <= ?) ORDER BY first_index LIMIT ?",
        (start, PAGE_ROWS),
    ).fetchall()


def verify_page(path: Path, checker: RowChecker) -> int | None:
    """Check the next rows on a separate connection; returns their size in bytes, None after the last ones.

    Raises Damaged. Trimming may have taken rows away since the page before: what begins the log now needs nothing
    before it.
    """
    with closing(read_only(path)) as connection:
        rows = page(connection, start=checker.expected)
    if rows and rows[0][0] > checker.expected and extent(path, 0).first == rows[0][0]:
        checker.begin(rows[0][0])
    for row in rows:
        if checker.take(row):
            entry_of(row)
    return sum(len(row[2]) for row in rows) if len(rows) == PAGE_ROWS else None
