"""Metrics of a simulated run: waits, slowdown, comparison with a private share, fairness, pool utilization."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Final, NamedTuple

from bench.queue.engine import Outcome, Simulation
from bench.queue.policies import EASY, Fifo
from bench.queue.trace import SECOND, Job, Load

CLASSES: Final = (("1 GPU", 1, 1), ("2-7", 2, 7), ("8+", 8, 1 << 30))
BOUND_S: Final = 600.0
"""Bounded slowdown takes shorter jobs as if they ran for so long."""
WORSE: Final = 1.05
HOURS: Final = {"1 h": 1, "1 d": 24}


class Waits(NamedTuple):
    """Of one size class; minutes, the longest in hours."""

    mean_min: float
    median_min: float
    p95_h: float
    longest_h: float


class Figures(NamedTuple):
    """The columns of the comparison."""

    waits: Mapping[str, Waits]
    """By size class, "all" among them."""
    slowdown: float
    """Mean bounded slowdown."""
    worse_percent: float
    """Jobs that end later than on a private slice, by more than 5 %."""
    worst_rho: float
    """The mean of the tenant that is worst off."""
    jain: Mapping[str, float]
    """Of service against entitlement while backlogged, by window."""
    utilisation_percent: float
    stranded_percent: float
    """GPU time that was free though a waiting job fitted."""
    evictions: int
    evictions_max: int
    lost_gpu_h: float
    decision_ms: tuple[float, float]
    """Per start: mean and 99th percentile."""


def figures(load: Load, outcome: Outcome, private: Mapping[int, int]) -> Figures:
    """The figures of a run; `private` is the end of each job on its tenant's slice."""
    jobs = load.jobs
    rho = {job.id: _rho(job, outcome, private) for job in jobs}
    by_tenant: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant].append(rho[job.id])
    total = load.gpus * outcome.span_s
    decisions = sorted(outcome.decisions_s)
    return Figures(
        waits={"all": _waits(jobs, outcome)}
        | {name: _waits([job for job in jobs if low <= job.gpus <= high], outcome) for name, low, high in CLASSES},
        slowdown=mean(_slowdown(job, outcome) for job in jobs),
        worse_percent=100 * sum(value > WORSE for value in rho.values()) / len(rho),
        worst_rho=max(map(mean, by_tenant.values())),
        jain={name: _jain(outcome, hours) for name, hours in HOURS.items()},
        utilisation_percent=100 * outcome.busy_gpu_s / total,
        stranded_percent=100 * outcome.idle_wanted_gpu_s / total,
        evictions=sum(outcome.evictions.values()),
        evictions_max=max(outcome.evictions.values(), default=0),
        lost_gpu_h=outcome.lost_gpu_s / 3600,
        decision_ms=(1000 * mean(decisions), 1000 * decisions[int(0.99 * len(decisions))]),
    )


def private_ends(load: Load) -> dict[int, int]:
    """When each job would end if its tenant had an equal part of the GPUs to itself: FIFO with backfill."""
    tenants = load.tenants
    ends: dict[int, int] = {}
    for tenant in tenants:
        jobs = [job for job in load.jobs if job.tenant == tenant]
        gpus = max(load.gpus // len(tenants), *(job.gpus for job in jobs))
        starts = Simulation(jobs, gpus, Fifo("private", EASY)).run().starts
        ends.update((job.id, starts[job.id] + job.duration) for job in jobs)
    return ends


def _waits(jobs: Sequence[Job], outcome: Outcome) -> Waits:
    waits = sorted((outcome.starts[job.id] - job.submit) / SECOND / 60 for job in jobs)
    if not waits:
        return Waits(0, 0, 0, 0)
    return Waits(mean(waits), median(waits), waits[int(0.95 * (len(waits) - 1))] / 60, waits[-1] / 60)


def _slowdown(job: Job, outcome: Outcome) -> float:
    spent = (outcome.starts[job.id] + job.duration - job.submit) / SECOND
    return max(1.0, spent / max(BOUND_S, job.duration / SECOND))


def _rho(job: Job, outcome: Outcome, private: Mapping[int, int]) -> float:
    return (outcome.starts[job.id] + job.duration - job.submit) / (private[job.id] - job.submit)


def _jain(outcome: Outcome, hours: int) -> float:
    """Mean over windows of the index of service per backlogged second; windows with one tenant say nothing."""
    windows: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for hour, tenants in outcome.service.items():
        for tenant, (seconds, service) in tenants.items():
            entry = windows[hour // hours][tenant]
            entry[0] += seconds
            entry[1] += service
    found = []
    for tenants in windows.values():
        rates = [service / seconds for seconds, service in tenants.values() if seconds >= 360 * hours]
        if len(rates) > 1:
            found.append(_index(rates))
    return mean(found) if found else 1.0


def _index(values: Iterable[float]) -> float:
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
