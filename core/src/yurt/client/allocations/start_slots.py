"""Lets allocations that come together start a few at a time.

A start is work for one thread. If three hundred starts take turns, each lasts as long as all of them, and their memory
is in use at one time: 30 KB each, and small objects that stay lie scattered over it, so that Python never returns it.
So the first ones start first. The bound is on hooks and tasks: a queued allocation has its record and its directory,
and its predecessors are over. A start that waits for something (an image, a volume) delays the others only until
`HOLD_S` is over.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from yurt.client.timed_waits import LightEvent
from yurt.runtime.env import Env, Timer

AT_ONCE: Final = 64
HOLD_S: Final = 1.0
"""The longest time for which a start keeps its slot: slow starts begin at a rate of 64 a second."""


class StartSlots:
    """A bound on the number of allocations that start at the same time."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: deque[tuple[str, LightEvent]] = deque()
        self._timers: dict[str, Timer] = {}
        """By allocation, the end of its time with a slot."""

    def request(self, alloc_id: str, may_start: LightEvent) -> None:
        """Set `may_start` once a slot is free, in the order of the calls; at once where one is free.

        An allocation whose event is set by another has no slot and needs none: it is to stop.
        """
        self._waiting.append((alloc_id, may_start))
        self._grant()

    def release(self, alloc_id: str) -> None:
        """Free the slot of an allocation that has started or ended; no effect without one."""
        timer = self._timers.pop(alloc_id, None)
        if timer is not None:
            timer.cancel()
            self._grant()

    def _grant(self) -> None:
        while self._waiting and len(self._timers) < AT_ONCE:
            alloc_id, may_start = self._waiting.popleft()
            if not may_start.is_set():
                self._timers[alloc_id] = self._env.call_later(HOLD_S, partial(self.release, alloc_id))
                may_start.set()
