"""Free capacity over time: the amount free now, the releases of running jobs at their time limits, and the
reservations.

A profile is a list of steps: from `times[i]` on, until the next step, `free[i]` is free. Amounts are vectors of one or
more resources, all of the same length. Capacity is that of a whole pool; whether it lies on one node is for the
scheduler to find.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

Vector = tuple[int, ...]
NEVER: Final = 1 << 62
"""A time after all others."""


class Profile:
    """The steps; only `take` changes them."""

    def __init__(self, now: int, free: Vector, releases: Iterable[tuple[int, Vector]]) -> None:
        """`releases` are (time, amount) in any order.

        What has not been released by its time is overdue. It holds its amount still: each such time is a step of its
        own, in their order, a nanosecond after the one before it.
        """
        self.times: list[int] = [now]
        self.free: list[Vector] = [free]
        self._last_overdue = now
        last = None
        for time, amount in sorted(releases):
            total = tuple(map(int.__add__, self.free[-1], amount))
            if time != last:
                self.times.append(max(time, self.times[-1] + 1))
                self.free.append(total)
            else:
                self.free[-1] = total
            if time <= now:
                self._last_overdue = self.times[-1]
            last = time

    def earliest(self, required: Vector, duration: int, *, since: int = 0, by: int = NEVER) -> int:
        """The first time, that of a step from `since` on, at which the amounts are free for the duration; NEVER when
        there is none up to `by`."""
        times, free = self.times, self.free
        start = bisect_left(times, since)
        while start < len(times) and times[start] <= by:
            blocked = self._last_lack(start, required, self._end(times[start], duration))
            if blocked < 0:
                return times[start]
            start = blocked + 1
            while start < len(times) and not _fits(required, free[start]):
                start += 1
        return NEVER

    def has_capacity(self, required: Vector, duration: int) -> bool:
        """Whether the amounts are free from now on for the duration."""
        end = self.times[0] + duration
        for time, free in zip(self.times, self.free, strict=True):
            if time >= end:
                break
            if not _fits(required, free):
                return False
        return True

    def take(self, required: Vector, start: int, duration: int) -> None:
        """Reserve the amounts from `start` on for the duration."""
        assert start >= self.times[0], (start, self.times[0])
        first, last = self._split(start), self._split(min(self._end(start, duration), NEVER))
        for at in range(first, last):
            self.free[at] = tuple(map(int.__sub__, self.free[at], required))

    def _end(self, start: int, duration: int) -> int:
        """The end of what starts then; with something overdue, it starts now."""
        return max(start, (self.times[0] if start <= self._last_overdue else start) + duration)

    def _last_lack(self, start: int, required: Vector, end: int) -> int:
        """The last step from `start` on and before `end` with too little free; -1 when there is none."""
        lack = -1
        for at in range(start, len(self.times)):
            if self.times[at] >= end:
                break
            if not _fits(required, self.free[at]):
                lack = at
        return lack

    def _split(self, time: int) -> int:
        """The number of the step that begins at a time; created when missing."""
        at = bisect_right(self.times, time) - 1
        if self.times[at] == time:
            return at
        self.times.insert(at + 1, time)
        self.free.insert(at + 1, self.free[at])
        return at + 1


def _fits(required: Vector, free: Vector) -> bool:
    return all(map(int.__le__, required, free))
