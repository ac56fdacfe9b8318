"""Metrics of a simulated run: waits, slowdown, comparison with a private share, fairness, pool utilization."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import NamedTuple

from yurt.queue import played_trace
from yurt.queue.played_trace import WINDOW_HOURS, TraceJob, WaitTimes

from bench.queue.engine import Outcome
from bench.queue.trace import Load


class Figures(NamedTuple):
    """The columns of the comparison."""

    waits: Mapping[str, WaitTimes]
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
    jobs = _trace_jobs(load)
    ends = {job.id: outcome.starts[job.id] + job.duration for job in jobs}
    compared = played_trace.rho(jobs, ends, private)
    total = load.gpus * outcome.span_s
    decisions = sorted(outcome.decisions_s)
    return Figures(
        waits=played_trace.waits_by_class(jobs, outcome.starts),
        slowdown=played_trace.mean_slowdown(jobs, ends),
        worse_percent=compared.worse_percent,
        worst_rho=max(compared.by_tenant.values()),
        jain={name: outcome.tally.jain(hours) for name, hours in WINDOW_HOURS.items()},
        utilisation_percent=100 * outcome.tally.busy_s / total,
        stranded_percent=100 * outcome.tally.idle_unused_s / total,
        evictions=sum(outcome.evictions.values()),
        evictions_max=max(outcome.evictions.values(), default=0),
        lost_gpu_h=outcome.lost_gpu_s / 3600,
        decision_ms=(1000 * mean(decisions), 1000 * decisions[int(0.99 * len(decisions))]),
    )


def private_ends(load: Load) -> dict[int, int]:
    """When each job would end if its tenant had an equal part of the GPUs to itself: FIFO with backfill."""
    return played_trace.private_ends(_trace_jobs(load), load.gpus)


def _trace_jobs(load: Load) -> list[TraceJob]:
    return [TraceJob(*job) for job in load.jobs]
