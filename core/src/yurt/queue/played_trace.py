"""Metrics of a played trace: waits, slowdown, comparison with a private share, fairness, utilization.

A trace is a list of submissions with known run times. What a job asks is counted in one unit, that of the whole trace:
GPUs, or cores. All times are in nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from statistics import mean, median
from typing import Final, NamedTuple

from yurt.queue.amounts import Amounts
from yurt.queue.backfill import BackfillRules, decide
from yurt.queue.profile import NEVER, Profile
from yurt.queue.waiting_job import Waiting
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

SIZE_CLASSES: Final = (("1", 1, 1), ("2-7", 2, 7), ("8+", 8, 1 << 30))
"""Names of the classes, and the smallest and largest size in each."""
ALL: Final = "all"
NO_UNITS: Final = "0"
"""The class of jobs that ask for nothing of the trace's unit, as jobs without a GPU in a trace with GPUs."""
BOUND: Final = 600 * NANOSECONDS
"""Bounded slowdown counts shorter run times as this one."""
WORSE: Final = 1.05
"""A job whose turnaround exceeds that on a private share by this factor counts as worse off."""
HOUR: Final = 3600 * NANOSECONDS
WINDOW_HOURS: Final = {"1 h": 1, "1 d": 24}
BACKLOG_PART: Final = 10
"""Only tenants that wait for at least this part (a tenth) of a window count in its index."""
_EASY: Final = BackfillRules(reservations=1, depth=500)
_BAND_PRIORITY: Final = 50


class TraceJob(NamedTuple):
    """One submission of a trace."""

    id: int
    submit: int
    duration: int
    limit: int
    """The declared limit of the run time; 0: none."""
    size: int
    tenant: str

    @property
    def lasts(self) -> int:
        """The time for which it runs: its run time, or its limit where that is shorter."""
        return min(self.duration, self.limit or self.duration)


class WaitTimes(NamedTuple):
    """The waits of one size class, in seconds."""

    jobs: int
    mean_s: float
    median_s: float
    p95_s: float
    longest_s: float


class ServiceTally:
    """Sums over time: the units in use, and each tenant's service while it waits."""

    def __init__(self, first: int) -> None:
        self.now = first
        self.busy_s = 0.0
        """Unit-seconds in use."""
        self.idle_unused_s = 0.0
        """Unit-seconds that were free though a waiting job was no larger than what was free."""
        self._service: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))

    def advance(
        self,
        to: int,
        *,
        used: int,
        free: int,
        used_by_tenant: Mapping[str, int],
        waiting: Mapping[str, int],
        smallest: int,
    ) -> None:
        """Count what was so until `to`; `waiting` counts jobs by tenant, `smallest` is the least waiting size or 0."""
        while self.now < to:
            step = min(to, (self.now // HOUR + 1) * HOUR) if any(waiting.values()) else to
            seconds = (step - self.now) / NANOSECONDS
            self.busy_s += seconds * used
            if smallest and smallest <= free:
                self.idle_unused_s += seconds * free
            for tenant, count in waiting.items():
                if count:
                    # Hours in which nobody waits are neither stepped through nor kept: a trace may have years of them.
                    entry = self._service[self.now // HOUR][tenant]
                    entry[0] += seconds
                    entry[1] += seconds * used_by_tenant.get(tenant, 0)
            self.now = step

    def jain(self, hours: int) -> float:
        """The mean over windows of Jain's index of service per second of backlog; 1 when nobody competes."""
        windows: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
        for hour, tenants in self._service.items():
            for tenant, (seconds, service) in tenants.items():
                entry = windows[hour // hours][tenant]
                entry[0] += seconds
                entry[1] += service
        indexes = []
        least = hours * HOUR / NANOSECONDS / BACKLOG_PART
        for tenants in windows.values():
            rates = [service / seconds for seconds, service in tenants.values() if seconds >= least]
            if len(rates) > 1:
                indexes.append(jain_index(rates))
        return mean(indexes) if indexes else 1.0


def jain_index(values: Iterable[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has all."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def waits_by_class(jobs: Sequence[TraceJob], starts: Mapping[int, int]) -> dict[str, WaitTimes]:
    """The waits of all jobs that started, and of each size class."""
    started = [job for job in jobs if job.id in starts]
    by_class = {ALL: started}
    by_class[NO_UNITS] = [job for job in started if not job.size]
    by_class |= {name: [job for job in started if low <= job.size <= high] for name, low, high in SIZE_CLASSES}
    return {name: _waits([starts[job.id] - job.submit for job in of_class]) for name, of_class in by_class.items()}


def _waits(waits: list[int]) -> WaitTimes:
    if not waits:
        return WaitTimes(0, 0.0, 0.0, 0.0, 0.0)
    ordered = [wait / NANOSECONDS for wait in sorted(waits)]
    return WaitTimes(len(ordered), mean(ordered), median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])


def mean_slowdown(jobs: Sequence[TraceJob], ends: Mapping[int, int]) -> float:
    """The mean bounded slowdown of the jobs that ended: turnaround / max(run time, 10 minutes), at least 1."""
    slowdowns = [max(1.0, (ends[job.id] - job.submit) / max(BOUND, job.lasts)) for job in jobs if job.id in ends]
    return mean(slowdowns) if slowdowns else 1.0


class Rho(NamedTuple):
    """Turnarounds as multiples of those on a private share."""

    worse_percent: float
    """The percentage of jobs that are worse off."""
    by_tenant: Mapping[str, float]
    """The mean of each tenant's jobs."""


def rho(jobs: Sequence[TraceJob], ends: Mapping[int, int], private: Mapping[int, int]) -> Rho:
    """The jobs that ended, compared with `private`: the end of each job on its tenant's private share.

    Jobs without units have no share to be compared with.
    """
    by_tenant: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.id in ends and job.size:
            by_tenant[job.tenant].append((ends[job.id] - job.submit) / max(1, private[job.id] - job.submit))
    every = [value for values in by_tenant.values() for value in values]
    worse = 100 * sum(value > WORSE for value in every) / len(every) if every else 0.0
    return Rho(worse, {name: mean(values) for name, values in sorted(by_tenant.items())})


def private_ends(jobs: Sequence[TraceJob], units: int) -> dict[int, int]:
    """The time at which each job with units would end if its tenant had an equal share of the units for itself.

    The share is at least as large as the tenant's largest job; jobs start first come, first served, with backfill.
    """
    by_tenant: dict[str, list[TraceJob]] = defaultdict(list)
    for job in sorted((one for one in jobs if one.size), key=lambda one: (one.submit, one.id)):
        by_tenant[job.tenant].append(job)
    ends: dict[int, int] = {}
    for own in by_tenant.values():
        ends |= _ends_in_order(own, max(units // len(by_tenant), *(job.size for job in own), 1))
    return ends


def _ends_in_order(jobs: Sequence[TraceJob], units: int) -> dict[int, int]:
    """The ends of one tenant's jobs, in the order of their submission with backfill."""
    running: list[tuple[int, int]] = []
    by_id = {job.id: job for job in jobs}
    limits: dict[int, tuple[int, int]] = {}
    queue: dict[int, TraceJob] = {}
    ends: dict[int, int] = {}
    free, arrived = units, 0
    while arrived < len(jobs) or running:
        now = min([running[0][0]] if running else [NEVER])
        now = min(now, jobs[arrived].submit) if arrived < len(jobs) else now
        while running and running[0][0] <= now:
            ended = heapq.heappop(running)[1]
            free += by_id[ended].size
            del limits[ended]
        while arrived < len(jobs) and jobs[arrived].submit <= now:
            queue[jobs[arrived].id] = jobs[arrived]
            arrived += 1
        if not queue or not free:
            continue
        profile = Profile(now, (free,), ((end, (size,)) for end, size in limits.values()))
        first = islice(queue.values(), _EASY.depth + units)
        least = min(job.size for job in queue.values())
        made = decide(map(_waiting, first), profile, _EASY, vector=lambda job: (job.asked.gpu,), least=(least,))
        for started in made.starts:
            job = queue.pop(started.create_index)
            free -= job.size
            ends[job.id] = now + job.lasts
            limits[job.id] = (now + (job.limit or job.duration), job.size)
            heapq.heappush(running, (ends[job.id], job.id))
    return ends


def _waiting(job: TraceJob) -> Waiting:
    return Waiting(
        key=(job.tenant, str(job.id)),
        tenant=(job.tenant,),
        priority=_BAND_PRIORITY,
        create_index=job.id,
        since=UnixNano(job.submit),
        asked=Amounts(gpu=job.size),
        limit=Duration(job.limit or job.duration),
    )
