"""Waits that an event interrupts: the log is closed, or the term has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The wait was interrupted; the awaited operation may or may not have taken effect."""


class Interrupt:
    """An event that interrupts all present and future waits guarded by it."""

    def __init__(self) -> None:
        self.is_raised = False
        self._limits: dict[asyncio.Timeout, None] = {}
        """In the order of the waits: a set would go by addresses, which differ from run to run."""

    def raise_(self) -> None:
        """Interrupt the waits; further calls have no effect."""
        if self.is_raised:
            return
        self.is_raised = True
        for limit in tuple(self._limits):
            limit.reschedule(asyncio.get_running_loop().time())

    async def guard(self, wait: Awaitable[T]) -> T:
        """Wait and return the result; raises Interrupted."""
        limit = asyncio.timeout(0 if self.is_raised else None)
        try:
            async with limit:
                self._limits[limit] = None
                try:
                    return await wait
                finally:
                    self._limits.pop(limit, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Interrupted from None
