"""Estimates start times of waiting jobs by simulating the queue over the expected ends of running jobs.

Jobs start in their order where they fit; behind one that does not fit, a few later ones are tried that end before it
could start. It is a forecast and decides nothing: placements follow the limits that jobs declare, never predictions.

A start depends on many run times, and the first of many ends is earlier than each one's likely end. So the queue is
simulated several times with run times drawn from their distributions, and quantiles of the starts are the forecast.
The draws depend on the jobs' names only: equal states give equal forecasts, and a forecast does not flicker.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from yurt.queue.profile import Vector
from yurt.queue.waiting_job import JobKey, Waiting

BACKFILL_TRIED: Final = 32
"""The number of jobs that are tried behind one that does not fit."""
DRAWS: Final = 15
"""The number of simulations of a forecast."""
DRAWS_LEAST: Final = 3
DRAWN_JOBS_MAX: Final = 60_000
"""The number of waiting jobs and running allocations in all simulations of a forecast together, beyond which there are
fewer simulations."""
LIKELY, BY = 50, 80
"""Percent of the draws that start by the two forecasts."""
_HEAD: Final = -1
_END: Final = -2
"""The places before and behind a line."""


class StartQuantiles(NamedTuple):
    """The starts that half and four fifths of the draws do not exceed, unix ns; jobs that do not start in enough draws
    are missing."""

    likely: Mapping[JobKey, int]
    by: Mapping[JobKey, int]


def draws_of(jobs: int) -> int:
    """The number of simulations for a forecast of this number of waiting jobs and running allocations."""
    return max(DRAWS_LEAST, min(DRAWS, DRAWN_JOBS_MAX // max(1, jobs)))


@lru_cache(maxsize=20_000)
def drawn_percent(name: str, draws: int) -> tuple[int, ...]:
    """The percentile of the run time of a job or an allocation in each draw: each part of the distribution once."""
    order = sorted(range(draws), key=lambda part: crc32(f"{name} {part}".encode()))
    return tuple((200 * part + 100) // (2 * draws) for part in order)


def start_quantiles(starts: Sequence[Mapping[JobKey, int]]) -> StartQuantiles:
    """The quantiles of the starts that the draws found; a draw without a start of a job counts as an infinite one."""
    found: dict[JobKey, list[int]] = {}
    for draw in starts:
        for key, start in draw.items():
            found.setdefault(key, []).append(start)
    at_likely, at_by = (min(len(starts) - 1, len(starts) * percent // 100) for percent in (LIKELY, BY))
    likely: dict[JobKey, int] = {}
    by: dict[JobKey, int] = {}
    for key, values in found.items():
        values.sort()
        if at_likely < len(values):
            likely[key] = values[at_likely]
        if at_by < len(values):
            by[key] = values[at_by]
    return StartQuantiles(likely, by)


def expected_starts(
    order: Iterable[Waiting],
    *,
    now: int,
    free: Vector,
    ends: Iterable[tuple[int, Vector]],
    vector: Callable[[Waiting], Vector],
    run_time: Callable[[Waiting], int],
) -> dict[JobKey, int]:
    """The expected start of each job, unix ns; jobs for which no release frees enough are missing."""
    line = _Line([_SimulatedJob(job.key, vector(job), run_time(job)) for job in order])
    forecast = _StartForecast(now, free, ends)
    starts: dict[JobKey, int] = {}
    while (first := line.after(_HEAD)) != _END:
        job = line.jobs[first]
        if not forecast.fits(job.asked):
            shadow = forecast.shadow(job.asked)
            if shadow < 0:
                line.remove(first)
                continue
            _backfill(forecast, line, first, shadow, starts)
        line.remove(first)
        starts[job.key] = forecast.start(job)
    return starts


class _SimulatedJob(NamedTuple):
    """A waiting job in one simulation."""

    key: JobKey
    asked: Vector
    run_time: int


def _backfill(forecast: _StartForecast, line: _Line, first: int, shadow: int, starts: dict[JobKey, int]) -> None:
    """Move to the shadow, the time at which the first job can start, and start jobs behind it that end by then.

    They end by the shadow, so they do not move it. A job that is too long now is too long later as well: it counts
    among those tried, and is not looked at again.
    """
    tried: list[int] = []
    room, last = BACKFILL_TRIED, first
    while forecast.now < shadow:
        while room and (following := line.after(last)) != _END:
            last, room = following, room - 1
            tried.append(following)
        kept: list[int] = []
        for place in tried:
            job = line.jobs[place]
            if forecast.now + job.run_time > shadow:
                continue
            if not forecast.fits(job.asked):
                kept.append(place)
                continue
            last = line.before(place) if place == last else last
            line.remove(place)
            room += 1
            starts[job.key] = forecast.start(job)
        tried = kept
        has_more = room > 0 and line.after(last) != _END
        # Nothing of this list can start before the least of each amount is free.
        least = tuple(map(min, zip(*(line.jobs[place].asked for place in tried), strict=True)))
        forecast.advance()
        while forecast.now < shadow and not has_more and not (tried and forecast.fits(least)):
            forecast.advance()


class _Line:
    """The waiting jobs in their order, as a linked list of places: jobs leave it anywhere."""

    def __init__(self, jobs: Sequence[_SimulatedJob]) -> None:
        self.jobs = jobs
        self._next: list[int] = [*range(1, len(jobs)), _END, 0 if jobs else _END]
        self._previous: list[int] = [_HEAD, *range(len(jobs))]

    def after(self, place: int) -> int:
        """The place behind a place; `_END` for none."""
        return self._next[place]

    def before(self, place: int) -> int:
        """The place before a place; `_HEAD` for none."""
        return self._previous[place]

    def remove(self, place: int) -> None:
        """Take the job at a place out."""
        before, after = self._previous[place], self._next[place]
        self._next[before] = after
        if after != _END:
            self._previous[after] = before


class _StartForecast:
    """Free capacity at a time that moves from one expected end to the next.

    The ends are one sorted list, of which the first `_passed` are over: each is sorted once, passed once, and seen once
    by a shadow, since time moves to each shadow. So a simulation costs what runs and waits, not their product.
    """

    def __init__(self, now: int, free: Vector, ends: Iterable[tuple[int, Vector]]) -> None:
        self.now, self.free = now, free
        self._ends = sorted((max(now, end), amount) for end, amount in ends)
        self._passed = 0
        self._whole = free
        """What is free once all has ended: no start and no end changes it."""
        for _, amount in self._ends:
            self._whole = tuple(map(int.__add__, self._whole, amount))

    def fits(self, asked: Vector) -> bool:
        return all(map(int.__le__, asked, self.free))

    def start(self, job: _SimulatedJob) -> int:
        self.free = tuple(map(int.__sub__, self.free, job.asked))
        insort(self._ends, (self.now + job.run_time, job.asked), lo=self._passed)
        return self.now

    def shadow(self, asked: Vector) -> int:
        """The time at which ends have released enough for the job; -1 if even all of them do not."""
        if not all(map(int.__le__, asked, self._whole)):
            return -1
        free = self.free
        for at in range(self._passed, len(self._ends)):
            end, amount = self._ends[at]
            free = tuple(map(int.__add__, free, amount))
            if all(map(int.__le__, asked, free)):
                return end
        return -1

    def advance(self) -> None:
        """Move to the next expected end."""
        self.now = self._ends[self._passed][0]
        while self._passed < len(self._ends) and self._ends[self._passed][0] == self.now:
            self.free = tuple(map(int.__add__, self.free, self._ends[self._passed][1]))
            self._passed += 1
