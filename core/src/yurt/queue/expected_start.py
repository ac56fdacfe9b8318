"""Estimates start times of waiting jobs by simulating the queue over the expected ends of running jobs.

Jobs start in their order where they fit; behind one that does not fit, a few later ones are tried that end before it
could start. It is a forecast and decides nothing: placements follow the limits that jobs declare, never predictions.

A start depends on many run times, and the first of many ends is earlier than each one's likely end. So the queue is
simulated several times with run times drawn from their distributions, and quantiles of the starts are the forecast.
The draws depend on the jobs' names only: equal states give equal forecasts, and a forecast does not flicker.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

from yurt.queue.profile import Vector
from yurt.queue.waiting_job import JobKey, Waiting

BACKFILL_TRIED: Final = 32
"""The number of jobs that are tried behind one that does not fit."""
DRAWS: Final = 15
"""The number of simulations of a forecast."""
DRAWS_LEAST: Final = 3
DRAWN_JOBS_MAX: Final = 6_000
"""The number of jobs in all simulations of a forecast together, beyond which there are fewer simulations."""
LIKELY, BY = 50, 80
"""Percent of the draws that start by the two forecasts."""


class StartQuantiles(NamedTuple):
    """The starts that half and four fifths of the draws do not exceed, unix ns; jobs without a start are missing."""

    likely: Mapping[JobKey, int]
    by: Mapping[JobKey, int]


def draws_of(jobs: int) -> int:
    """The number of simulations for a forecast of this number of jobs."""
    return max(DRAWS_LEAST, min(DRAWS, DRAWN_JOBS_MAX // max(1, jobs)))


@lru_cache(maxsize=20_000)
def drawn_percent(name: str, draws: int) -> tuple[int, ...]:
    """The percentile of the run time of a job or an allocation in each draw: each part of the distribution once."""
    order = sorted(range(draws), key=lambda part: crc32(f"{name} {part}".encode()))
    return tuple((200 * part + 100) // (2 * draws) for part in order)


def start_quantiles(starts: Sequence[Mapping[JobKey, int]]) -> StartQuantiles:
    """The quantiles of the starts that the draws found."""
    found: dict[JobKey, list[int]] = {}
    for draw in starts:
        for key, start in draw.items():
            found.setdefault(key, []).append(start)
    likely: dict[JobKey, int] = {}
    by: dict[JobKey, int] = {}
    for key, values in found.items():
        values.sort()
        likely[key] = values[min(len(values) - 1, len(values) * LIKELY // 100)]
        by[key] = values[min(len(values) - 1, len(values) * BY // 100)]
    return StartQuantiles(likely, by)


def expected_starts(
    order: Iterable[Waiting],
    *,
    now: int,
    free: Vector,
    ends: Sequence[tuple[int, Vector]],
    vector: Callable[[Waiting], Vector],
    run_time: Callable[[Waiting], int],
) -> dict[JobKey, int]:
    """The expected start of each job, unix ns; jobs for which no release frees enough are missing."""
    forecast = _StartForecast(now, free, ends)
    waiting = deque(order)
    starts: dict[JobKey, int] = {}
    while waiting:
        if forecast.fits(vector(waiting[0])):
            job = waiting.popleft()
            starts[job.key] = forecast.start(vector(job), run_time(job))
            continue
        shadow = forecast.shadow(vector(waiting[0]))
        if shadow < 0:
            waiting.popleft()
            continue
        for job in list(islice(waiting, 1, 1 + BACKFILL_TRIED)):
            if forecast.fits(vector(job)) and forecast.now + run_time(job) <= shadow:
                waiting.remove(job)
                starts[job.key] = forecast.start(vector(job), run_time(job))
        forecast.advance()
    return starts


class _StartForecast:
    """Free capacity at a time that moves from one expected end to the next."""

    def __init__(self, now: int, free: Vector, ends: Sequence[tuple[int, Vector]]) -> None:
        self.now, self.free = now, free
        self._ends = [(max(now, end), amount) for end, amount in ends]
        heapq.heapify(self._ends)

    def fits(self, asked: Vector) -> bool:
        return all(map(int.__le__, asked, self.free))

    def start(self, asked: Vector, duration: int) -> int:
        self.free = tuple(map(int.__sub__, self.free, asked))
        heapq.heappush(self._ends, (self.now + duration, asked))
        return self.now

    def shadow(self, asked: Vector) -> int:
        """The time at which ends have released enough for the job; -1 if even all of them do not."""
        free = self.free
        for end, amount in sorted(self._ends):
            free = tuple(map(int.__add__, free, amount))
            if all(map(int.__le__, asked, free)):
                return end
        return -1

    def advance(self) -> None:
        """Move to the next expected end."""
        self.now, amount = heapq.heappop(self._ends)
        self.free = tuple(map(int.__add__, self.free, amount))
        while self._ends and self._ends[0][0] == self.now:
            self.free = tuple(map(int.__add__, self.free, heapq.heappop(self._ends)[1]))
