"""Simulates a GPU pool in virtual time: feeds arrivals and completions to a policy, which selects jobs to start."""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from yurt.queue.played_trace import ServiceTally
from yurt.queue.profile import Profile

from bench.queue.trace import SECOND, Job

HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR


class Policy(Protocol):
    """Who is next."""

    name: str
    cycle: int
    """Nanoseconds between looks at the queue; 0: at each event."""

    def submit(self, job: Job, now: int) -> None:
        """A job waits from now on, for the first time or again."""
        ...

    def ended(self, job: Job, now: int) -> None:
        """A running job has ended or was evicted."""
        ...

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """The jobs that start now, all of which fit; they no longer wait. May evict."""
        ...


@dataclass
class Pool:
    """Free GPUs and running jobs."""

    gpus: int
    free: int
    running: dict[int, tuple[Job, int]] = field(default_factory=dict)
    """By id: the job and when it started."""
    held: Counter[str] = field(default_factory=Counter)
    """GPUs by tenant."""
    limits: list[tuple[int, int, int]] = field(default_factory=list)
    """(latest end, job, GPUs), sorted."""
    evicted: list[Job] = field(default_factory=list)

    def start(self, job: Job, now: int) -> None:
        """Take a job's GPUs."""
        assert job.gpus <= self.free, (job, self.free)
        self.free -= job.gpus
        self.held[job.tenant] += job.gpus
        self.running[job.id] = (job, now)
        insort(self.limits, (now + job.limit, job.id, job.gpus))

    def end(self, job: Job) -> None:
        """Give them back."""
        _, started = self.running.pop(job.id)
        self.free += job.gpus
        self.held[job.tenant] -= job.gpus
        del self.limits[bisect_left(self.limits, (started + job.limit, job.id, job.gpus))]

    def evict(self, job: Job) -> None:
        """End a job before its time; its work is lost."""
        self.end(job)
        self.evicted.append(job)

    def profile(self, now: int) -> Profile:
        """Free GPUs over time, by the limits of what runs."""
        return Profile(now, (self.free,), ((end, (gpus,)) for end, _, gpus in self.limits))


@dataclass
class Outcome:
    """What came of a trace under a policy."""

    name: str
    starts: dict[int, int]
    """The last start of each job."""
    evictions: Counter[int]
    lost_gpu_s: float
    span_s: float
    tally: ServiceTally
    decisions_s: list[float]


class Simulation:
    """One run of a trace."""

    def __init__(self, jobs: Sequence[Job], gpus: int, policy: Policy) -> None:
        self.policy, self.pool = policy, Pool(gpus, gpus)
        self._arrivals = jobs
        self._ends: list[tuple[int, int, int]] = []
        self._runs: Counter[int] = Counter()
        self._waiting: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._tally = ServiceTally(jobs[0].submit)
        self.starts: dict[int, int] = {}
        self._evictions: Counter[int] = Counter()
        self._lost = 0.0
        self._decisions: list[float] = []

    def run(self) -> Outcome:
        """Play the whole trace."""
        arrived = 0
        look: int | None = None
        while arrived < len(self._arrivals) or self._ends or look is not None:
            times = [self._arrivals[arrived].submit] if arrived < len(self._arrivals) else []
            times += [self._ends[0][0]] if self._ends else []
            times += [look] if look is not None else []
            now = min(times)
            self._tally.advance(
                now,
                used=self.pool.gpus - self.pool.free,
                free=self.pool.free,
                used_by_tenant=self.pool.held,
                waiting=self._waiting,
                smallest=min(+self._sizes, default=0),
            )
            is_changed = self._end_until(now)
            while arrived < len(self._arrivals) and self._arrivals[arrived].submit <= now:
                self._wait(self._arrivals[arrived], now)
                arrived += 1
                is_changed = True
            cycle = self.policy.cycle
            if cycle and is_changed and look is None:
                look = -(-now // cycle) * cycle
            if (look is not None and look <= now) or not cycle:
                look = None
                self._choose(now)
        return self._outcome()

    def _wait(self, job: Job, now: int) -> None:
        self._waiting[job.tenant] += 1
        self._sizes[job.gpus] += 1
        self.policy.submit(job, now)

    def _end_until(self, now: int) -> bool:
        is_changed = False
        while self._ends and self._ends[0][0] <= now:
            _, job_id, run = heapq.heappop(self._ends)
            if job_id in self.pool.running and run == self._runs[job_id]:
                job = self.pool.running[job_id][0]
                self.pool.end(job)
                self.policy.ended(job, now)
                is_changed = True
        return is_changed

    def _choose(self, now: int) -> None:
        before = time.perf_counter()
        chosen = self.policy.choose(self.pool, now)
        if chosen:
            self._decisions.append((time.perf_counter() - before) / len(chosen))
        for job in self.pool.evicted:
            self._evictions[job.id] += 1
            self._lost += (now - self.starts[job.id]) / SECOND * job.gpus
            self.policy.ended(job, now)
            self._wait(job, now)
        self.pool.evicted = []
        for job in chosen:
            self.pool.start(job, now)
            self.starts[job.id] = now
            self._waiting[job.tenant] -= 1
            self._sizes[job.gpus] -= 1
            self._runs[job.id] += 1
            heapq.heappush(self._ends, (now + job.duration, job.id, self._runs[job.id]))

    def _outcome(self) -> Outcome:
        return Outcome(
            name=self.policy.name,
            starts=self.starts,
            evictions=self._evictions,
            lost_gpu_s=self._lost,
            span_s=(self._tally.now - self._arrivals[0].submit) / SECOND,
            tally=self._tally,
            decisions_s=self._decisions,
        )
