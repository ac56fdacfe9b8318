"""Notifies hooks of the end of a run once: at its end, or when a stop fails and abandons it.

Each run has its own object. A run that could not be stopped may end much later, during the next run, and that must not
count as the end of the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.client.timed_waits import LightEvent


class RunEnd:
    """Whether a run has ended for its hooks, and their notification."""

    def __init__(self) -> None:
        self.ended = LightEvent()
        self._reporting = asyncio.Lock()

    async def notify(self, hooks: Callable[[], Awaitable[None]]) -> None:
        """Call the hooks unless they were called already; returns when they are done."""
        async with self._reporting:
            if not self.ended.is_set():
                self.ended.set()
                await hooks()
