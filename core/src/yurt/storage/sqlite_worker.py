"""One thread that owns one SQLite database; callers submit functions and await their results.

All that waits when the thread is free runs in one transaction (group commit): a disk flush serves as many callers
as came while the one before was under way. A function that raises loses its own changes alone. When the commit
itself fails, nobody's changes are acknowledged and the worker is broken for good: what a later flush says about the
lost pages can not be believed (invariant A10).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from yurt.sdk.errors import Conflict, Unavailable

T = TypeVar("T")
CLOSED = "the database is closed"
BATCH_MAX = 512
"""The maximum number of calls in one transaction."""
BUSY_TIMEOUT_S = 5.0


class _Call(msgspec.Struct, frozen=True):
    run: Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    is_statement: bool
    """It executes one statement at most."""


class SqlWorker(Protocol):
    """Executes functions on one database, each in a transaction that is durable before the call returns."""

    async def call(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the next transaction; raises Unavailable once the database has failed."""
        ...

    async def close(self) -> None:
        """Finish pending calls and close the file; may be called again."""
        ...


class SqliteWorker:
    """A database in WAL mode with synchronous=FULL: a call's writes are durable when it returns."""

    def __init__(self, path: Path, *, schema: str, name: str, on_commit: Callable[[], None] | None = None) -> None:
        """Open or create the database. Raises Conflict when the file is not a database.

        `on_commit` runs in the worker's thread after each commit and before anybody is answered; when it fails nobody's
        changes are acknowledged.
        """
        self._path = path
        self._on_commit = on_commit
        self._failure: str = ""
        self._is_closed = False
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._connection = self._connect(schema)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """The reason why the worker refuses further calls; "" while it works."""
        return self._failure or (CLOSED if self._is_closed else "")

    async def call(self, run: Callable[[sqlite3.Connection], T], *, is_statement: bool = False) -> T:
        """Run a function in the next transaction; its writes are durable on return.

        `is_statement`: it executes one statement at most, and cannot fail after it. SQLite makes that a transaction by
        itself where no other call waits; BEGIN and COMMIT would cost two GIL waits.
        """
        if self.failure:
            raise Unavailable(self.failure)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_Call(run, loop, answer, is_statement))
        return await answer

    async def close(self) -> None:
        """Finish pending calls and close the file; may be called again."""
        self._is_closed = True
        self._calls.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _connect(self, schema: str) -> sqlite3.Connection:
        with contextlib.ExitStack() as undo:
            try:
                connection = sqlite3.connect(
                    self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
                )
                undo.callback(connection.close)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.executescript(schema)
            except sqlite3.DatabaseError as error:
                raise self._broken(error) from error
            undo.pop_all()
        return connection

    def _broken(self, error: Exception) -> Conflict:
        return Conflict(
            f"the database {self._path} can not be read: {error}; restore it from a copy, "
            "or move it away to start empty"
        )

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch: list[_Call] = []
            is_open = self._gather(batch)
            if batch:
                self._run(batch)
        try:
            self._connection.close()
        except sqlite3.Error as error:
            self._failure = f"the database {self._path} could not be closed: {error}"

    def _gather(self, batch: list[_Call]) -> bool:
        call = self._calls.get()
        while call is not None:
            batch.append(call)
            if len(batch) == BATCH_MAX or self._calls.empty():
                return True
            call = self._calls.get()
        return False

    def _run(self, batch: list[_Call]) -> None:
        if self._failure:
            self._fail(batch, Unavailable(self._failure))
            return
        answers: list[tuple[Any, Exception | None]] = []
        try:
            if len(batch) > 1 or not batch[0].is_statement:
                self._connection.execute("BEGIN IMMEDIATE")
            for call in batch:
                answers.append(self._run_one(call, is_alone=len(batch) == 1))
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
            if self._on_commit is not None:
                self._on_commit()
        except (sqlite3.Error, OSError) as error:
            self._failure = f"the database {self._path} failed and takes no more changes: {error}"
            self._fail(batch, Unavailable(self._failure))
            return
        for call, (result, error_found) in zip(batch, answers, strict=True):
            _resolve(call, result, error_found)

    def _run_one(self, call: _Call, *, is_alone: bool) -> tuple[Any, Exception | None]:
        """Run a function; one that is alone in its transaction needs no savepoint, which would cost two GIL waits."""
        if not is_alone:
            self._connection.execute("SAVEPOINT one")
        try:
            result = call.run(self._connection)
        except (sqlite3.OperationalError, OSError):
            raise
        except sqlite3.DatabaseError as error:
            self._undo(is_alone=is_alone)
            return None, self._broken(error)
        except Exception as error:
            self._undo(is_alone=is_alone)
            return None, error
        if not is_alone:
            self._connection.execute("RELEASE one")
        return result, None

    def _undo(self, *, is_alone: bool) -> None:
        if is_alone:
            if self._connection.in_transaction:  # a single statement has been undone by itself
                self._connection.execute("ROLLBACK")
            return
        self._connection.execute("ROLLBACK TO one")
        self._connection.execute("RELEASE one")

    def _fail(self, batch: list[_Call], error: Exception) -> None:
        for call in batch:
            _resolve(call, None, error)


def _resolve(call: _Call, result: Any, error: Exception | None) -> None:
    def answer() -> None:
        if call.answer.done():
            return
        if error is None:
            call.answer.set_result(result)
        else:
            call.answer.set_exception(error)

    try:
        call.loop.call_soon_threadsafe(answer)
    except RuntimeError:
        return  # the loop is closed, and its waiting tasks are gone
