"""The stop order of an allocation, and the hooks and delays that precede the kill of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from yurt.client.timed_waits import LightEvent
from yurt.lifecycle.allocation import Stop
from yurt.runtime.env import Env


class StopOrder:
    """The order to stop an allocation, if given: its tasks are killed once `is_due` is set."""

    def __init__(self, env: Env) -> None:
        self.order: Stop | None = None
        self.is_due = LightEvent()
        self._env = env

    def give(self, order: Stop) -> None:
        """Give the order to stop; a later order has no effect."""
        self.order = self.order or order

    async def delay(self, first: Awaitable[None] | None, delay_s: float, changed: asyncio.Event) -> None:
        """Run the preceding steps, wait for the delay, then let the tasks be killed."""
        if first is not None:
            await first
        if delay_s > 0:
            await self._env.sleep(delay_s)
        self.is_due.set()
        changed.set()
