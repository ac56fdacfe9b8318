"""The client's database on a simulated disk: real SQLite whose file image outlives the process.

A call is carried out some time after it was made, when the disk has synced it, and answered then. A process that ends
before loses the call, or its transaction was committed without an answer. Calls are carried out in their order.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from yurt.sdk.errors import Unavailable
from yurt.testing.sim.loop import PROCESS, Process, SimLoop

T = TypeVar("T")
SYNC_S = (0.0005, 0.004)


class SimDisk:
    """The disk of one host."""

    def __init__(self, loop: SimLoop, seed: str) -> None:
        self.slow_s = 0.0
        """Additional seconds of each sync."""
        self.fails = False
        """Whether syncs fail: the database takes no more changes until the process restarts."""
        self.calls = 0
        self._loop = loop
        self._chance = random.Random(f"disk {seed}")
        self._image: sqlite3.Connection | None = None

    def open_worker(self, schema: str) -> SimWorker:
        """Open the database as the running process."""
        if self._image is None:
            self._image = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._image.executescript(schema)
        process = PROCESS.get()
        assert process is not None, "only a process has a disk"
        return SimWorker(self, process, self._image)

    def lose(self) -> None:
        """Replace the disk by an empty one."""
        self._image = None

    def sync_s(self) -> float:
        """The virtual time that a sync takes, in seconds."""
        return self._chance.uniform(*SYNC_S) + self.slow_s

    def is_committed_late(self) -> bool:
        """Whether the transaction in progress was committed when its process ended."""
        return self._chance.random() < 0.5


class SimWorker:
    """The open database of one process."""

    def __init__(self, disk: SimDisk, process: Process, image: sqlite3.Connection) -> None:
        self._disk = disk
        self._process = process
        self._image = image
        self._failure = ""
        self._free_s = 0.0

    async def call(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction that is durable on return."""
        if self._failure:
            raise Unavailable(self._failure)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._disk.calls += 1
        self._free_s = max(self._free_s, loop.time()) + self._disk.sync_s()
        loop.call_at(self._free_s, self._carry_out, run, answer)
        return await answer

    def _carry_out(self, run: Callable[[sqlite3.Connection], T], answer: asyncio.Future[T]) -> None:
        if self._process.is_dead and not self._disk.is_committed_late():
            return
        if self._disk.fails and not self._process.is_dead:
            self._failure = "the database failed and takes no more changes: disk I/O error"
        if self._failure:
            _give(answer, None, Unavailable(self._failure))
            return
        self._image.execute("BEGIN IMMEDIATE")
        try:
            result = run(self._image)
        except Exception as error:
            self._image.execute("ROLLBACK")
            _give(answer, None, error)
            return
        self._image.execute("COMMIT")
        _give(answer, result, None)

    async def close(self) -> None:
        """Close the database; the image remains."""
        self._failure = "the database is closed"


def _give(answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)  # type: ignore[arg-type]
