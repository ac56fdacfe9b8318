"""Lets allocations that come together start a few at a time.

A start is work for one thread, and so is an end. If three hundred of them take turns, each lasts as long as all of
them, and their memory is in use at one time: 30 KB each, and small objects that stay lie scattered over it, so that
Python never returns it. So the first ones start first, and those that have already ended are finished before more of
them start: an end waits for no slot, but takes one. The bound is on hooks and tasks: a queued allocation has its record
and its directory, and its predecessors are over. A start that waits for something (an image, a volume), or an end (a
container), delays the others only until `HOLD_S` is over.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from yurt.client.timed_waits import LightEvent
from yurt.runtime.env import Env, Timer

AT_ONCE: Final = 32
HOLD_S: Final = 0.5
"""The longest time for which a start or an end keeps its slot while the event loop has little to do: slow starts begin
at a rate of 64 a second."""
HOLD_MAX_S: Final = 5.0
"""The same for an event loop that is busy."""
LOOK_S: Final = 0.05
LATE_S: Final = 0.005
"""A timer that is later shows that the event loop is busy, or waits for a processor: then time says nothing about
whether a start waits for something."""


class _Hold(msgspec.Struct, frozen=True, gc=False):
    began: float
    idle_s: float
    """`StartSlots._idle_s` at that time."""


class StartSlots:
    """A bound on the number of allocations that start or end at the same time; ends never wait."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: deque[tuple[str, LightEvent]] = deque()
        self._holds: dict[str, _Hold] = {}
        """By allocation, the slots in use, oldest first."""
        self._idle_s = 0.0
        """The time with slots in use in which the event loop had little to do."""
        self._look: Timer | None = None
        self._look_at = 0.0

    def request(self, alloc_id: str, may_start: LightEvent) -> None:
        """Set `may_start` once a slot is free, in the order of the calls; at once where one is free.

        An allocation whose event is set by another has no slot and needs none: it is to stop.
        """
        self._waiting.append((alloc_id, may_start))
        self._grant()

    def take(self, alloc_id: str) -> None:
        """Take a slot at once, even beyond the bound, for an allocation whose tasks have ended."""
        self._holds.pop(alloc_id, None)
        self._holds[alloc_id] = _Hold(self._env.monotonic(), self._idle_s)
        self._watch()

    def release(self, alloc_id: str) -> None:
        """Free the slot of an allocation that runs or is over; no effect without one."""
        if self._holds.pop(alloc_id, None) is not None:
            self._grant()

    def _grant(self) -> None:
        while self._waiting and len(self._holds) < AT_ONCE:
            alloc_id, may_start = self._waiting.popleft()
            if not may_start.is_set():
                self.take(alloc_id)
                may_start.set()

    def _watch(self) -> None:
        if self._look is None:
            self._look_at = self._env.monotonic() + LOOK_S
            self._look = self._env.call_later(LOOK_S, self._free_old)

    def _free_old(self) -> None:
        """Free the slots that were in use for too long."""
        self._look, now = None, self._env.monotonic()
        if now - self._look_at <= LATE_S:
            self._idle_s += LOOK_S
        for alloc_id, hold in tuple(self._holds.items()):
            if self._idle_s - hold.idle_s < HOLD_S and now - hold.began < HOLD_MAX_S:
                break
            del self._holds[alloc_id]
        self._grant()
        if self._holds:
            self._watch()
