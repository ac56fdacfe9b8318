"""Where the error of a job's first start forecast comes from: each unknown is replaced by the truth, one after another.

At a sample of the moments at which the server would forecast, the jobs that have just come get a forecast by the
shipped simulation and by the real rules of the queue (a copy of the simulated pool and policy, played on), with
estimated or true run times of the running and the waiting jobs, and without or with the jobs that really come later.
No forecast is corrected by past ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from yurt.queue.accuracy import LEAST_WAIT
from yurt.queue.expected_start import DRAWS, drawn_percent, expected_starts, start_quantiles
from yurt.queue.run_times import RunTimes
from yurt.queue.waiting_job import JobKey

from bench.queue.engine import Pool, Simulation
from bench.queue.policies import FairShare, gpus_of
from bench.queue.starts import EVERY, kinds_of
from bench.queue.trace import Job, Load

FEW_DRAWS: Final = 3
"""Draws of a forecast by the real rules, each of which plays the queue on."""
PER_CENT: Final = 100
RunTime = Callable[[Job, int], int]
"""The run time of a job that has run for some nanoseconds."""


class Substitution(NamedTuple):
    """What a forecast knows."""

    name: str
    is_running_known: bool = False
    is_waiting_known: bool = False
    has_rules: bool = False
    """Whether the copied policy decides: fair share as it changes, backfill by declared limits, boost."""
    has_arrivals: bool = False


SHIPPED: Final = Substitution("nothing: as shipped")
SUBSTITUTIONS: Final = (
    SHIPPED,
    Substitution("run times of running jobs", is_running_known=True),
    Substitution("run times of waiting jobs", is_waiting_known=True),
    Substitution("all run times", is_running_known=True, is_waiting_known=True),
    Substitution("rules", has_rules=True),
    Substitution("rules, all run times", is_running_known=True, is_waiting_known=True, has_rules=True),
    Substitution("rules, arrivals", has_rules=True, has_arrivals=True),
    Substitution(
        "rules, arrivals, run times of running jobs", is_running_known=True, has_rules=True, has_arrivals=True
    ),
    Substitution("everything", is_running_known=True, is_waiting_known=True, has_rules=True, has_arrivals=True),
)


class SubstitutionError(NamedTuple):
    """The first forecasts of one substitution: errors in percent of the wait, and the jobs that start by them."""

    jobs: int
    median_percent: float
    late_percent: float
    """Percentage of jobs that start later than forecast by more than a tenth of the wait."""
    early_percent: float


class SubstitutedFairShare(FairShare):
    """Yurt's order, with forecasts of new jobs by each substitution at every n-th moment with new jobs."""

    def __init__(self, base: FairShare, jobs: Sequence[Job], *, every: int) -> None:
        super().__init__(base.rules)
        self.errors: dict[str, list[float]] = {}
        """Signed, in percent of the wait, by substitution: positive when a job starts later than forecast."""
        self._all, self._every = jobs, every
        self._history = RunTimes()
        self._moment, self._next = 0, 0
        self._new: list[Job] = []
        self._forecast: dict[JobKey, tuple[int, dict[str, int]]] = {}

    def submit(self, job: Job, now: int) -> None:
        super().submit(job, now)
        self._new.append(job)

    def ended(self, job: Job, now: int) -> None:
        super().ended(job, now)
        self._history.add(kinds_of(job), job.duration, limit=job.limit)

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """What starts; a sample of the others gets forecasts."""
        started = super().choose(pool, now)
        for job in started:
            self._score(key_of(job), now)
        gone = set(started)
        self._new = [job for job in self._new if job not in gone]
        if self._new and now >= self._next:
            self._next, self._moment = now + EVERY, self._moment + 1
            if self._moment % self._every == 0:
                self._forecast_new(pool, started, now)
            self._new = []
        return started

    def _score(self, key: JobKey, now: int) -> None:
        made, starts = self._forecast.pop(key, (0, {}))
        for name, start in starts.items():
            self.errors.setdefault(name, []).append(PER_CENT * (now - start) / max(LEAST_WAIT, now - made))

    def _forecast_new(self, pool: Pool, started: Sequence[Job], now: int) -> None:
        keys = {key_of(job) for job in self._new}
        running = [*pool.running.values(), *((job, now) for job in started)]
        found = {each.name: self._starts(each, pool, running, now, keys) for each in SUBSTITUTIONS}
        for key in keys:
            self._forecast[key] = now, {name: starts[key] for name, starts in found.items() if key in starts}

    def _starts(
        self, known: Substitution, pool: Pool, running: Sequence[tuple[Job, int]], now: int, keys: set[JobKey]
    ) -> Mapping[JobKey, int]:
        is_exact = known.is_running_known and known.is_waiting_known
        draws = 1 if is_exact else FEW_DRAWS if known.has_rules else DRAWS
        return start_quantiles(
            [self._drawn(known, pool, running, now, keys, draw, draws) for draw in range(draws)]
        ).likely

    def _drawn(
        self, known: Substitution, pool: Pool, running: Sequence[tuple[Job, int]], now: int, keys: set[JobKey],
        draw: int, draws: int,
    ) -> Mapping[JobKey, int]:  # fmt: skip
        def estimated(job: Job, elapsed: int) -> int:
            percent = drawn_percent(str(job.id), draws)[draw]
            return self._history.expected(kinds_of(job), percent=percent, elapsed=elapsed, limit=job.limit)

        def true(job: Job, _: int) -> int:
            return job.duration

        of_running = true if known.is_running_known else estimated
        of_waiting = true if known.is_waiting_known else estimated
        ends = [(max(now, start + of_running(job, now - start)), job) for job, start in running]
        if known.has_rules:
            later = self._later(now) if known.has_arrivals else ()
            return dict(played_on(self.copied(), running, ends, later, pool.gpus, of_waiting, now, keys))
        return expected_starts(
            list(self.order(pool, now)),
            now=now,
            free=(pool.free - sum(job.gpus for job, start in running if job.id not in pool.running),),
            ends=[(end, (job.gpus,)) for end, job in ends],
            vector=gpus_of,
            run_time=lambda job: of_waiting(self._jobs[job.create_index], 0),
        )

    def _later(self, now: int) -> Iterator[Job]:
        return (job for job in self._all[len(self._jobs) :] if job.submit > now)

    def copied(self) -> FairShare:
        """The policy as it is, without forecasts; it changes apart from this one."""
        made = FairShare(self.rules, turns=self.turns, delay=self.delay)
        for job in self.line:
            made.submit(self._jobs[job.create_index], job.since)
        made.usages = self.usages.copied()
        return made


def played_on(
    policy: FairShare, running: Iterable[tuple[Job, int]], ends: Iterable[tuple[int, Job]], arrivals: Iterable[Job],
    gpus: int, run_time: RunTime, now: int, keys: set[JobKey],
) -> Iterator[tuple[JobKey, int]]:  # fmt: skip
    """The starts of these jobs when a policy goes on with what runs, and with later arrivals."""
    pool, left = Pool(gpus, gpus), set(keys)
    for job, start in running:
        pool.start(job, start)
    events = [(end, 0, job.id, job) for end, job in ends]
    heapq.heapify(events)
    coming = iter(arrivals)
    following = next(coming, None)
    while left and (events or following is not None):
        now = min(events[0][0] if events else following.submit, following.submit if following else events[0][0])
        while events and events[0][0] <= now:
            job = heapq.heappop(events)[3]
            pool.end(job)
            policy.ended(job, now)
        while following is not None and following.submit <= now:
            policy.submit(following, now)
            following = next(coming, None)
        for job in policy.choose(pool, now):
            pool.start(job, now)
            heapq.heappush(events, (now + run_time(job, 0), 0, job.id, job))
            if key_of(job) in left:
                left.remove(key_of(job))
                yield key_of(job), now


def key_of(job: Job) -> JobKey:
    """The job as the queue names it."""
    return job.tenant, str(job.id)


def measured(work: Load, base: FairShare, *, every: int) -> dict[str, SubstitutionError]:
    """The errors over a trace, by substitution."""
    policy = SubstitutedFairShare(base, work.jobs, every=every)
    Simulation(work.jobs, work.gpus, policy).run()
    return {name: _of(errors) for name, errors in policy.errors.items()}


def _of(errors: Sequence[float]) -> SubstitutionError:
    return SubstitutionError(
        jobs=len(errors),
        median_percent=round(median(map(abs, errors)), 1),
        late_percent=round(PER_CENT * sum(each > PER_CENT / 10 for each in errors) / len(errors), 1),
        early_percent=round(PER_CENT * sum(each < -PER_CENT / 10 for each in errors) / len(errors), 1),
    )
