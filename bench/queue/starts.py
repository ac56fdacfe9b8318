"""The error of start forecasts on a trace: the shipped estimator, asked while the simulator plays the trace.

Forecasts are made as the server makes them, at most every 30 s while jobs wait that have none. *First* is the error of
a job's first forecast, made when the job arrived; *any time* is the error of all forecasts shown while it waited, each
weighted by the time for which it was shown. Both are relative to the whole wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from yurt.queue.accuracy import LEAST_WAIT, Accuracy, Forecast, Start, WaitClass, by_wait, weighted_median
from yurt.queue.amounts import Amounts
from yurt.queue.backfill import stays_boosted
from yurt.queue.expected_start import drawn_percent, draws_of, expected_starts, start_quantiles
from yurt.queue.run_times import RunTimes
from yurt.queue.waiting_job import JobKey, Waiting

from bench.queue.engine import Pool, Simulation
from bench.queue.policies import CARD, FairShare
from bench.queue.trace import SECOND, Job, Load

EVERY: Final = 30 * SECOND
MINUTE: Final = 60 * SECOND


class StartErrors(NamedTuple):
    """Percent of the wait, and of jobs."""

    jobs: int
    first_percent: float
    uncorrected_percent: float
    any_time_percent: float
    by_likely_percent: float
    by_percent: float
    after_limits_percent: float
    """Jobs that started after the start by limits of their first forecast, which is not shown."""
    with_latest: int
    """Jobs that were shown a latest start while they waited."""
    after_latest_percent: float
    """Of these, the jobs that started after the earliest latest start that they were shown."""
    forecast_ms: float
    """CPU time of one forecast of all waiting jobs."""
    by_wait: list[dict[str, float]]
    """The first forecasts by the length of the wait; minutes, percent."""


class ForecastFairShare(FairShare):
    """Yurt's order, with a start forecast for each waiting job."""

    def __init__(self, base: FairShare) -> None:
        super().__init__(base.rules)
        self.accuracy = Accuracy()
        self.all_starts: deque[Start] = deque()
        self.shown: list[tuple[float, int]] = []
        """(error in percent of the wait, nanoseconds for which it was shown)."""
        self.cpu_s = 0.0
        self.forecasts = 0
        self._history = RunTimes()
        self._next = 0
        self._unforecast: set[JobKey] = set()
        self._said: dict[JobKey, list[tuple[int, int]]] = {}

    def submit(self, job: Job, now: int) -> None:
        """Its start is to be forecast."""
        super().submit(job, now)
        self._unforecast.add((job.tenant, str(job.id)))

    def ended(self, job: Job, now: int) -> None:
        """Its run time is known."""
        super().ended(job, now)
        self._history.add(_kinds(job), job.duration, limit=job.limit)

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """What starts; the others get a forecast."""
        started = super().choose(pool, now)
        for job in started:
            self._started((job.tenant, str(job.id)), now)
        if self._unforecast and now >= self._next and len(self.line):
            self._next = now + EVERY
            before = time.process_time()
            self._forecast(pool, started, now)
            self.cpu_s += time.process_time() - before
            self.forecasts += 1
        return started

    def _started(self, key: JobKey, now: int) -> None:
        self._unforecast.discard(key)
        self.accuracy.started(key, now)
        said = self._said.pop(key, [])
        if not said:
            return
        self.all_starts.append(self.accuracy.last)
        wait = max(LEAST_WAIT, now - said[0][0])
        for (at, likely), (until, _) in zip(said, [*said[1:], (now, 0)], strict=True):
            self.shown.append((100 * abs(likely - now) / wait, until - at))

    def _forecast(self, pool: Pool, started: Sequence[Job], now: int) -> None:
        running = [*pool.running.values(), *((job, now) for job in started)]
        order = list(self.order(pool, now))
        draws = draws_of(len(order))

        def run_time(draw: int, job: Job, elapsed: int) -> int:
            percent = drawn_percent(str(job.id), draws)[draw]
            return self._history.expected(_kinds(job), percent=percent, elapsed=elapsed, limit=job.limit)

        def simulated(run_time: Callable[[Job, int], int]) -> dict[JobKey, int]:
            return expected_starts(
                order,
                now=now,
                free=(pool.free - sum(job.gpus for job in started),),
                ends=[(start + run_time(job, now - start), (job.gpus,)) for job, start in running],
                vector=_gpus,
                run_time=lambda job: run_time(self._jobs[job.create_index], 0),
            )

        found = start_quantiles([simulated(partial(run_time, draw)) for draw in range(draws)])
        by_limits, latest = simulated(lambda job, _: job.limit), self._latest(pool, started, order, now)
        plain = {
            key: Forecast(now, likely, found.by[key], by_limits[key], latest.get(key, 0))
            for key, likely in found.likely.items()
        }
        corrected = {key: self.accuracy.corrected(key, forecast) for key, forecast in plain.items()}
        self.accuracy.note(plain, corrected)
        for key, forecast in corrected.items():
            self._said.setdefault(key, []).append((now, forecast.likely))
        self._unforecast.clear()

    def _latest(self, pool: Pool, started: Sequence[Job], order: Sequence[Waiting], now: int) -> dict[JobKey, int]:
        """The latest start that the leader would show: that of the boosted job."""
        profile = pool.profile(now)
        for job in started:
            profile.take((job.gpus,), profile.times[0], job.limit)
        head = order[0]
        start = profile.earliest(_gpus(head), head.limit, since=0)
        old = self.boosted_gpus(pool) + sum(job.gpus for job in started if now >= self._boost_of(job))
        is_sure = stays_boosted(
            order,
            self.turns.boost_after,
            now=now,
            until=start,
            in_use=Amounts(gpu=old * CARD),
            capacity=Amounts(gpu=pool.gpus * CARD),
        )
        return {head.key: start} if is_sure else {}


def measured(work: Load, base: FairShare) -> StartErrors:
    """The errors over a whole trace."""
    policy = ForecastFairShare(base)
    Simulation(work.jobs, work.gpus, policy).run()
    starts = policy.all_starts
    promised = [start for start in starts if start.latest]
    return StartErrors(
        jobs=len(starts),
        first_percent=median(_error(start, start.forecast) for start in starts),
        uncorrected_percent=median(_error(start, start.plain) for start in starts),
        any_time_percent=weighted_median(policy.shown),
        by_likely_percent=100 * sum(start.at <= start.forecast.likely for start in starts) / len(starts),
        by_percent=100 * sum(start.at <= start.forecast.by for start in starts) / len(starts),
        after_limits_percent=100 * sum(start.at > start.forecast.by_limits for start in starts) / len(starts),
        with_latest=len(promised),
        after_latest_percent=100 * sum(start.at > start.latest for start in promised) / max(1, len(promised)),
        forecast_ms=1000 * policy.cpu_s / policy.forecasts,
        by_wait=[_in_minutes(each) for each in by_wait(starts)],
    )


def _in_minutes(one: WaitClass) -> dict[str, float]:
    return {
        "below": one.below / MINUTE,
        "starts": one.starts,
        "median_wait": round(one.median_wait / MINUTE, 1),
        "median_error": round(one.median_error / MINUTE, 1),
        "error_percent": round(one.median_error_percent, 1),
        "by_likely_percent": round(one.by_likely_percent),
    }


def _kinds(job: Job) -> tuple[tuple[object, ...], ...]:
    return (("size", job.tenant, job.gpus), ("tenant", job.tenant), ("all",))


def _gpus(job: Waiting) -> tuple[int, ...]:
    return (job.asked.gpu // CARD,)


def _error(start: Start, forecast: Forecast) -> float:
    return 100 * abs(start.at - forecast.likely) / max(LEAST_WAIT, start.at - forecast.made)
