"""Past run times of jobs, and estimates from them for running and waiting jobs.

The times of the last runs are kept by *kind*, from the narrowest to the widest: of the same job id, of the same tenant
and size, of the tenant, of all. A question takes the narrowest kind with enough runs. A job that has run for a while
already is compared with those runs only that took longer. No answer exceeds the limit that the job declares.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final

KEPT: Final = 200
"""The maximum number of recorded runs of each kind; older ones are dropped."""
ENOUGH: Final = 5
"""The number of recorded runs of a kind from which they are used for a prediction."""
KINDS_MAX: Final = 20_000
"""The maximum number of recorded kinds; beyond, the kind that was added first is dropped."""


class RunTimes:
    """The run times of each kind."""

    def __init__(self) -> None:
        self._last: dict[Hashable, deque[int]] = {}
        self._sorted: dict[Hashable, list[int]] = {}

    def add(self, kinds: Sequence[Hashable], duration: int) -> None:
        """Record a run."""
        for kind in kinds:
            last = self._last.get(kind)
            if last is None:
                self._make_room()
                last = self._last[kind] = deque()
                self._sorted[kind] = []
            ordered = self._sorted[kind]
            if len(last) == KEPT:
                del ordered[bisect_right(ordered, last.popleft()) - 1]
            last.append(duration)
            insort(ordered, duration)

    def expected(self, kinds: Sequence[Hashable], *, percent: int, elapsed: int, limit: int) -> int:
        """The run time that this percentage of comparable runs did not exceed; the limit when none is comparable."""
        for kind in kinds:
            ordered = self._sorted.get(kind, ())
            first = bisect_right(ordered, elapsed) if elapsed else 0
            comparable = len(ordered) - first
            if comparable >= ENOUGH:
                at = first + min(comparable - 1, comparable * percent // 100)
                return max(elapsed, min(ordered[at], limit))
        return max(elapsed, limit)

    def _make_room(self) -> None:
        if len(self._last) >= KINDS_MAX:
            oldest = next(iter(self._last))
            del self._last[oldest], self._sorted[oldest]
