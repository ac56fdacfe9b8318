"""Runs calls into the driver one after the other on a thread of its own; the agent never waits for it at its end.

A driver can hang for good when a GPU has failed. A call that takes too long is given up by who waits for it, and
further calls are refused until it comes back; the thread is a daemon, so that the agent can end meanwhile. As with any
executor, what a call raises is raised where it is awaited.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Hanging(Exception):
    """The driver does not return from a call."""


class NvmlThread:
    """One thread for all calls."""

    def __init__(self, name: str, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._name = name
        self._thread: threading.Thread | None = None
        self._running: Future[Any] | None = None
        self._late: Future[Any] | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Run a call on the thread; raises Hanging at the time limit, or while an earlier call hangs."""
        if self._late is not None and not self._late.done():
            raise Hanging(f"the driver has not come back from a call within {self._limit_s:g} s")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._work.put((future, work))
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.cancel()  # Nobody waits for it any more: one that has not begun must not change the machine later.
            raise
        except TimeoutError:
            future.cancel()
            self._late = self._running
            raise Hanging(f"the driver has not come back from a call within {self._limit_s:g} s") from None

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            self._running = future
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def close(self) -> None:
        """End the thread after the queued calls."""
        self._work.put(None)
