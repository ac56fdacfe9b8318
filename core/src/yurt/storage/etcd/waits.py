"""Waits that end at once when something else has happened: the log was closed, the term is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The wait was ended; what was waited for may or may not have happened."""


class Interrupt:
    """Ends all waits that run under it, those to come included."""

    def __init__(self) -> None:
        self.is_raised = False
        self._limits: set[asyncio.Timeout] = set()

    def raise_(self) -> None:
        """End the waits; a second call does nothing."""
        if self.is_raised:
            return
        self.is_raised = True
        for limit in tuple(self._limits):
            limit.reschedule(asyncio.get_running_loop().time())

    async def guard(self, wait: Awaitable[T]) -> T:
        """What the wait gives; raises Interrupted."""
        limit = asyncio.timeout(0 if self.is_raised else None)
        try:
            async with limit:
                self._limits.add(limit)
                try:
                    return await wait
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Interrupted from None
