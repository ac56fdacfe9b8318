"""The stop order of an allocation, and the hooks and delays that precede the kill of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from yurt.client.timed_waits import LightEvent
from yurt.lifecycle.allocation import Stop
from yurt.runtime.env import Env


class StopOrder:
    """Without an order, the allocation continues; with one, its tasks are killed as soon as it is due."""

    def __init__(self, env: Env) -> None:
        self.order: Stop | None = None
        self.is_due = LightEvent()
        self._env = env

    def give(self, order: Stop) -> None:
        """The allocation is to end; the first order counts."""
        self.order = self.order or order

    async def delay(self, first: Awaitable[None] | None, delay_s: float, changed: asyncio.Event) -> None:
        """Run the preceding steps, wait, and release the kills."""
        if first is not None:
            await first
        if delay_s > 0:
            await self._env.sleep(delay_s)
        self.is_due.set()
        changed.set()
