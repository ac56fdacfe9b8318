"""Ensures that hooks learn of the end of a run once, from its watch or from a stop that gave it up.

Each run has its own. A run that could not be stopped may end much later, beside the next one, and that end must not
be taken for the end of the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.client.timed_waits import LightEvent


class RunEnd:
    """Whether a run has ended for its hooks, and whether they know."""

    def __init__(self) -> None:
        self.ended = LightEvent()
        self._reporting = asyncio.Lock()

    async def notify(self, hooks: Callable[[], Awaitable[None]]) -> None:
        """Tell the hooks, unless that was done; returns when they are done."""
        async with self._reporting:
            if not self.ended.is_set():
                self.ended.set()
                await hooks()
