"""Lets allocations that come together start a few at a time.

A start is work for one thread. If a hundred starts take turns, each lasts as long as all of them, and their memory is
in use at one time: 30 KB each, which fragments Python's heap for good. So the first ones start first. A start that
waits for something (an image, a predecessor, other members of a gang) delays the others only until `HOLD_S` is over.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from yurt.runtime.env import Env, Timer

AT_ONCE: Final = 32
HOLD_S: Final = 1.0
"""The longest time for which a start keeps its slot: slow starts begin at a rate of 32 a second."""


class StartSlots:
    """A bound on the number of allocations that start at the same time."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._free = asyncio.Semaphore(AT_ONCE)
        self._timers: dict[str, Timer] = {}
        """By allocation, the end of its time with a slot."""

    async def take(self, alloc_id: str) -> None:
        """Wait for a slot, in the order of the calls."""
        await self._free.acquire()
        self._timers[alloc_id] = self._env.call_later(HOLD_S, partial(self.release, alloc_id))

    def release(self, alloc_id: str) -> None:
        """Free the slot of an allocation that has started or ended; no effect without one."""
        timer = self._timers.pop(alloc_id, None)
        if timer is not None:
            timer.cancel()
            self._free.release()
