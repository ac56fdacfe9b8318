"""Past run times of jobs, and estimates from them for running and waiting jobs.

The times of the last runs are kept by *kind*, from the narrowest to the widest: of the same job id, of the same tenant
and size, of the tenant, of all. A question takes the narrowest kind with enough runs, or that with the most runs where
none has enough. A job that has run for a while already is compared with those runs only that took longer. No answer
exceeds the limit that the job declares.

Runs of the same job resemble each other, so a few of them are enough. Those of a tenant differ by orders of magnitude:
the quantiles of few of them are wrong by more than what a narrower kind gains. On the Philly trace, forecasts at any
time of a wait erred by 20 % of the wait with 5 runs of a tenant, by 16 % with 20, and by 25 % with 40.

Runs that declared a limit are also kept as parts of that limit: where users declare what they need, and a margin, the
limit says more about a run time than those of other jobs do. Before a run is recorded, both estimates of it are
compared with its real time, and the kind of estimate that was nearer in recent runs answers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Sequence
from math import log
from typing import Final

KEPT: Final = 200
"""The maximum number of recorded runs of each kind; older ones are dropped."""
SAME_JOB: Final = "job"
"""The first part of kinds of runs of the same job."""
ENOUGH_OF_JOB: Final = 5
"""The number of recorded runs of the same job from which they are used for a prediction; of other kinds, the minimum
number of runs for a prediction where no kind has enough."""
ENOUGH: Final = 20
"""The number of recorded runs of other kinds from which they are used for a prediction."""
KINDS_MAX: Final = 20_000
"""The maximum number of recorded kinds; beyond, the kind whose last run is the oldest is dropped: the wide ones stay,
since each run counts for them."""
UNLIMITED: Final = 365 * 24 * 3600 * 1_000_000_000
"""The run time of jobs without a limit or a history, in nanoseconds."""
WHOLE: Final = 1_000_000
"""Parts of a limit are counted in millionths."""
NEWEST_PART: Final = 0.05
"""The weight of the newest run in the mean error of an estimate."""
MEDIAN: Final = 50

Kind = tuple[object, ...]
"""What runs have in common: its name, then the values."""


class _Kinds:
    """The last values of each kind, in the order of their arrival and sorted; the kinds in the order of their last."""

    def __init__(self) -> None:
        self._last: OrderedDict[Kind, deque[int]] = OrderedDict()
        self._sorted: dict[Kind, list[int]] = {}

    def add(self, kinds: Sequence[Kind], value: int) -> None:
        for kind in kinds:
            last = self._last.get(kind)
            if last is None:
                self._make_room()
                last = self._last[kind] = deque()
                self._sorted[kind] = []
            self._last.move_to_end(kind)
            ordered = self._sorted[kind]
            if len(last) == KEPT:
                del ordered[bisect_right(ordered, last.popleft()) - 1]
            last.append(value)
            insort(ordered, value)

    def quantiles(self, kinds: Sequence[Kind], *, percents: Sequence[int], above: int) -> list[int] | None:
        """The values that these percentages of those greater than `above` did not exceed, of the narrowest kind with
        enough of them."""
        most: Sequence[int] = ()
        most_first, most_comparable = 0, ENOUGH_OF_JOB - 1
        for kind in kinds:
            ordered = self._sorted.get(kind, ())
            first = bisect_right(ordered, above) if above else 0
            comparable = len(ordered) - first
            if comparable > most_comparable:
                most, most_first, most_comparable = ordered, first, comparable
                if comparable >= (ENOUGH_OF_JOB if kind[0] == SAME_JOB else ENOUGH):
                    break
        if not most:
            return None
        return [most[most_first + min(most_comparable - 1, most_comparable * percent // 100)] for percent in percents]

    def _make_room(self) -> None:
        if len(self._last) >= KINDS_MAX:
            oldest, _ = self._last.popitem(last=False)
            del self._sorted[oldest]


class RunTimes:
    """The run times of each kind."""

    def __init__(self) -> None:
        self._times = _Kinds()
        self._parts = _Kinds()
        self._error_of_times = self._error_of_parts = 0.0
        self._compared = 0

    def add(self, kinds: Sequence[Kind], duration: int, *, limit: int = 0) -> None:
        """Record a run, and the limit that it declared (0: none)."""
        if limit:
            self._compare(kinds, duration, limit)
            self._parts.add(kinds, min(WHOLE, duration * WHOLE // limit))
        self._times.add(kinds, duration)

    def expected(self, kinds: Sequence[Kind], *, percent: int, elapsed: int, limit: int) -> int:
        """The run time that this percentage of comparable runs did not exceed; the limit when none is comparable.

        `limit` is what the job declares; 0: none.
        """
        return self.expected_each(kinds, percents=(percent,), elapsed=elapsed, limit=limit)[0]

    def expected_each(self, kinds: Sequence[Kind], *, percents: Sequence[int], elapsed: int, limit: int) -> list[int]:
        """As `expected`, for several percentages at the price of one search."""
        found = None
        if limit and self._compared >= ENOUGH_OF_JOB and self._error_of_parts < self._error_of_times:
            found = self._by_part(kinds, percents=percents, elapsed=elapsed, limit=limit)
        if found is None:
            found = self._times.quantiles(kinds, percents=percents, above=elapsed)
        most = limit or UNLIMITED
        if found is None:
            return [max(elapsed, most)] * len(percents)
        return [max(elapsed, min(each, most)) for each in found]

    def _by_part(self, kinds: Sequence[Kind], *, percents: Sequence[int], elapsed: int, limit: int) -> list[int] | None:
        parts = self._parts.quantiles(kinds, percents=percents, above=min(WHOLE, elapsed * WHOLE // limit))
        return None if parts is None else [part * limit // WHOLE for part in parts]

    def _compare(self, kinds: Sequence[Kind], duration: int, limit: int) -> None:
        """Compare both estimates of a run with its real time, as the logarithms of the ratios."""
        by_time = self._times.quantiles(kinds, percents=(MEDIAN,), above=0)
        by_part = self._by_part(kinds, percents=(MEDIAN,), elapsed=0, limit=limit)
        if by_time is None or by_part is None:
            return
        self._compared += 1
        part = max(NEWEST_PART, 1 / self._compared)
        self._error_of_times += part * (_log_error(by_time[0], duration) - self._error_of_times)
        self._error_of_parts += part * (_log_error(by_part[0], duration) - self._error_of_parts)


def _log_error(estimate: int, duration: int) -> float:
    return abs(log(max(1, estimate)) - log(max(1, duration)))
