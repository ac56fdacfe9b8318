"""A SQLite database in memory, for agents that keep nothing on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from yurt.sdk.errors import Unavailable
from yurt.storage.sqlite_worker import CLOSED

T = TypeVar("T")


class SqliteMemory:
    """Executes functions in the caller's thread: a statement takes microseconds, to wake another thread takes more."""

    def __init__(self, schema: str) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # It keeps the pages of deleted rows: without this it would only grow.
        self._connection.execute("PRAGMA auto_vacuum=FULL")
        self._connection.executescript(schema)
        self._is_closed = False

    async def call(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction of its own; raises Unavailable once the database is closed."""
        if self._is_closed:
            raise Unavailable(CLOSED)
        self._connection.execute("BEGIN")
        try:
            result = run(self._connection)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return result

    async def close(self) -> None:
        """Close the database, whose rows are gone; may be called again."""
        self._is_closed = True
        self._connection.close()
