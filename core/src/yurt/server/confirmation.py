"""Reads that must not be stale: before one, the log confirms that this server leads still.

A confirmation that was under way when a read came says nothing about that read; the next one serves all reads that
came meanwhile. So at most one is under way, and no read waits for more than two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.sdk.errors import Unavailable, YurtError

CONFIRM_LIMIT_S = 5.0


class _Round:
    """One confirmation and those who wait for it."""

    __slots__ = ("done", "is_void", "problem")

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.is_void = True
        self.problem = ""


class Confirmation:
    """Shares the confirmations of a log among reads."""

    def __init__(self, confirm: Callable[[], Awaitable[None]]) -> None:
        self._confirm = confirm
        self._next: _Round | None = None
        self._running = asyncio.Lock()

    async def wait(self) -> None:
        """Return when this server was confirmed to lead after the call; raises Unavailable when it was not."""
        while True:
            found = self._next
            if found is None:
                found = self._next = _Round()
                await self._run(found)
            else:
                await found.done.wait()
            if found.problem:
                raise Unavailable(found.problem)
            if not found.is_void:
                return

    async def _run(self, mine: _Round) -> None:
        """Carry out a round; void when whoever carries it out is cancelled."""
        try:
            async with self._running:
                self._next = None
                try:
                    async with asyncio.timeout(CONFIRM_LIMIT_S):
                        await self._confirm()
                except (YurtError, TimeoutError) as error:
                    mine.problem = str(error) or "leadership could not be confirmed in time"
                mine.is_void = False
        finally:
            if self._next is mine:
                self._next = None
            mine.done.set()
