"""Queue reports: positions, reasons, expected starts and tenants' usage; functions of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.fsm.bookkeeping.queue_usage import usage_of_row
from yurt.queue import decay
from yurt.queue.accuracy import Forecast
from yurt.queue.amounts import NOTHING, Amounts
from yurt.queue.dynamic_priority import Adjusted, percentage_used
from yurt.queue.expected_start import drawn_percent, draws_of, expected_starts, start_quantiles
from yurt.queue.job_queue import JobQueue
from yurt.queue.run_times import UNLIMITED, RunTimes
from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.capacity.pool_capacity import PoolCapacity
from yurt.server.queueing.entries import QueueEntry, capacity_of, end_by_limit, entries, kinds_of, usage_by_tenant
from yurt.server.queueing.guarantee_ledger import GuaranteedLine, GuaranteeLedger
from yurt.server.queueing.guaranteed import GuaranteedJobs
from yurt.server.queueing.latest_starts import latest_starts
from yurt.server.queueing.order import adjusted_order, ordered
from yurt.server.queueing.pool_view import PoolView
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.batch_queue import HOUR, BatchQueue

HISTORY_MAX: Final = 5_000
"""Ended allocations from which run times are learned, the newest."""
FORECASTS_MAX: Final = 2_000
"""Jobs at the head of a queue for which a start is forecast."""


class Place(NamedTuple):
    """A waiting job as the queue shows it; times in unix nanoseconds, 0 for unknown."""

    entry: QueueEntry
    position: int
    status: str
    """queued, placing (the head, which the scheduler has or gets next) or blocked."""
    reason: str
    waits_for: JobKey | None
    """The running job that ends first by its limit, of any namespace."""
    adjusted: Adjusted | None
    expected_start: int
    expected_by: int
    latest_start: int
    """The latest start that the queue guarantees (`latest_starts`); 0 where it guarantees none."""
    start_by_limits: int = 0
    """The start if all run to their limits and no job comes and passes; no expected start is later."""


class TenantUse(NamedTuple):
    """A tenant's decayed usage in hours of MHz, MiB and GPUs; its present usage for types other than fair_share."""

    tenant: tuple[str, ...]
    used: Amounts
    total: Amounts
    percent: int
    waiting: int


class _Forecast(NamedTuple):
    likely: Mapping[JobKey, int]
    by: Mapping[JobKey, int]
    by_limits: Mapping[JobKey, int]


def places(state: Snapshot, pool: str, now: int, *, region: str = "") -> list[Place]:
    """The jobs of a pool's queue in order; empty for a pool without a queue."""
    queue = _queue(state, pool)
    if queue is None:
        return []
    waiting, view, order, guaranteed = _order(state, pool, queue, now, region=region)
    adjusted: dict[JobKey, Adjusted] = {}
    if queue.dynamic_priority is not None:
        found = adjusted_order(queue.dynamic_priority, order, view.usage, now)
        adjusted = {one.job.key: one for one in found}
    free_capacity = view.free_capacity()
    running = view.running()
    forecast = _forecast(state, pool, queue, order, view, now)
    latest = latest_starts(view, order, waiting, now, region=region)
    next_to_end = _next_to_end(running, queue)
    shown: list[Place] = []
    for position, job in enumerate(order):
        entry = waiting[job.key]
        state_of, reason = _reason(free_capacity, entry, position, guaranteed)
        is_queued = state_of != "blocked"
        shown.append(
            Place(
                entry=entry,
                position=position,
                status=state_of,
                reason=reason,
                waits_for=next_to_end if is_queued and not free_capacity.has_capacity(entry.demands) else None,
                adjusted=adjusted.get(job.key),
                expected_start=forecast.likely.get(job.key, 0) if is_queued else 0,
                expected_by=forecast.by.get(job.key, 0) if is_queued else 0,
                latest_start=latest.get(job.key, 0) if is_queued else 0,
                start_by_limits=forecast.by_limits.get(job.key, 0) if is_queued else 0,
            )
        )
    return shown


def forecasts(state: Snapshot, pool: str, now: int, *, region: str = "") -> dict[JobKey, Forecast]:
    """The uncorrected expected starts of the jobs in a pool's queue; unknown ones are missing."""
    queue = _queue(state, pool)
    if queue is None:
        return {}
    waiting, view, order, _ = _order(state, pool, queue, now, region=region)
    found = _forecast(state, pool, queue, order, view, now)
    latest = latest_starts(view, order, waiting, now, region=region)
    return {
        key: Forecast(now, likely, found.by.get(key, 0), found.by_limits.get(key, 0), latest.get(key, 0))
        for key, likely in found.likely.items()
    }


def _order(
    state: Snapshot, pool: str, queue: BatchQueue, now: int, *, region: str = ""
) -> tuple[dict[JobKey, QueueEntry], PoolView, list[Waiting], GuaranteedJobs]:
    """The jobs that wait, their order, and their guarantees."""
    waiting = {entry.waiting.key: entry for entry in entries(state, pool)}
    line = JobQueue()
    for entry in waiting.values():
        line.put(entry.waiting)
    view, ledger = PoolView(state, pool, queue), GuaranteeLedger(region)
    ledger.show(state)
    tree = ledger.tree
    of_guarantees = GuaranteedJobs(view, ledger, None if tree is None else GuaranteedLine(tree, line), now=now)
    first = of_guarantees.all_first(waiting)
    keys = {job.key for job in first}
    order = [*first, *(job for job in ordered(view, line, now) if job.key not in keys)]
    return waiting, view, order, GuaranteedJobs(view, ledger, None, now=now)


def tenants(state: Snapshot, pool: str, now: int) -> list[TenantUse]:
    """The tenants of a queue: those that have used something, and those that wait."""
    queue = _queue(state, pool)
    if queue is None or queue.fifo is not None:
        return []
    if queue.fair_share is None:
        used = usage_by_tenant(state, pool, queue)
    else:
        rows = state.queue_usages.where("pool", pool)
        decayed = {row.tenant: decay.used(usage_of_row(row), now, row.half_life) for row in rows}
        used = {name: Amounts(*(amount // HOUR for amount in own)) for name, own in decayed.items()}
    counts: dict[tuple[str, ...], int] = {}
    for entry in entries(state, pool):
        counts[entry.waiting.tenant] = counts.get(entry.waiting.tenant, 0) + 1
    total = NOTHING
    for amounts in used.values():
        total = total.plus(amounts)
    return [
        TenantUse(
            tenant=name,
            used=used.get(name, NOTHING),
            total=total,
            percent=percentage_used(used.get(name, NOTHING), total),
            waiting=counts.get(name, 0),
        )
        for name in sorted({*used, *counts})
    ]


def _queue(state: Snapshot, pool: str) -> BatchQueue | None:
    row = state.node_pools.get(pool)
    return None if row is None else row.batch_queue


def _reason(
    free_capacity: PoolCapacity, entry: QueueEntry, position: int, guaranteed: GuaranteedJobs
) -> tuple[str, str]:
    """The status of a job and the first cause of its wait."""
    evaluation = entry.evaluation
    if evaluation.quota_limit_reached:
        return "queued", f'quota "{evaluation.quota_limit_reached}" is used up'
    if entry.demands and not any(free_capacity.total_places(one.ask) >= max(1, one.least) for one in entry.demands):
        return "blocked", "it asks for more than the nodes of its pool have, even when they are empty"
    if free_capacity.has_capacity(entry.demands):
        if evaluation.status == status.EVAL_BLOCKED:
            return "blocked", "there is room, but no node meets its constraints; see `yurt job why-not`"
        return ("placing" if position == 0 else "queued"), "the scheduler looks at it next"
    quota = guaranteed.quota_of(entry)
    if quota:
        kind = "placing" if position == 0 else "queued"
        return kind, f'it is within the guarantee of quota "{quota}": what others borrow is reclaimed once unprotected'
    if position == 0:
        return "placing", "it is first and waits for room"
    before = f"{position} job{'s' if position > 1 else ''}"
    return "queued", f"{before} before it"


def _next_to_end(running: Sequence[Allocation], queue: BatchQueue) -> JobKey | None:
    """The running job that ends first by its limit."""
    ends = [(end, alloc.job_id, alloc.namespace) for alloc in running if (end := end_by_limit(alloc, queue))]
    if not ends:
        return None
    _, job_id, namespace = min(ends)
    return (namespace, job_id)


def _forecast(
    state: Snapshot, pool: str, queue: BatchQueue, order: Sequence[Waiting], view: PoolView, now: int
) -> _Forecast:
    """Expected starts by run times of the past, and by declared limits."""
    simulated = _Simulated(state, pool, queue, order, view, now)
    drawn = start_quantiles([simulated.starts(draw) for draw in range(simulated.draws)])
    return _Forecast(drawn.likely, drawn.by, simulated.starts_by_limits())


class _SimulatedRun(NamedTuple):
    """What a job or an allocation takes; its end by its limit, and its ends in the draws."""

    amounts: Amounts
    limit: int
    drawn: Sequence[int]


class _Simulated:
    """The inputs of the simulations of a forecast: ends of allocations, and run times of the jobs that wait."""

    def __init__(
        self, state: Snapshot, pool: str, queue: BatchQueue, order: Sequence[Waiting], view: PoolView, now: int
    ) -> None:
        self._now, self._history = now, _history(state, pool, queue)
        capacity = used = capacity_of(state, pool, queue)
        running = list(view.runs())
        for _, _, amounts in running:
            used = used.plus(amounts, -1)
        self._free = tuple(used)
        self.first = [job for job in order[:FORECASTS_MAX] if job.asked.fits_in(capacity)]
        """The jobs whose starts are forecast."""
        self.draws = draws_of(len(self.first) + len(running))
        self._ends = [self._end(*run) for run in running]
        self._run_times = {job.key: self._run_time(state, job) for job in self.first}

    def starts(self, draw: int) -> dict[JobKey, int]:
        """The starts in one draw."""
        return self._simulated(
            ((run.drawn[draw], run.amounts) for run in self._ends),
            lambda job: self._run_times[job.key].drawn[draw],
        )

    def starts_by_limits(self) -> dict[JobKey, int]:
        """The starts by declared limits alone."""
        return self._simulated(
            ((run.limit, run.amounts) for run in self._ends), lambda job: self._run_times[job.key].limit
        )

    def _simulated(self, ends: Iterable[tuple[int, Amounts]], run_time: Callable[[Waiting], int]) -> dict[JobKey, int]:
        found = expected_starts(
            self.first, now=self._now, free=self._free, ends=ends, vector=lambda job: job.asked, run_time=run_time
        )
        return {key: start for key, start in found.items() if start < self._now + UNLIMITED // 2}

    def _end(self, alloc: Allocation, end: int, amounts: Amounts) -> _SimulatedRun:
        begin, elapsed = alloc.create_time, max(0, self._now - alloc.create_time)
        limit = end - begin if end else 0
        latest = begin + max(elapsed, limit or UNLIMITED)
        if alloc.job is None:
            return _SimulatedRun(amounts, latest, (latest,) * self.draws)
        drawn = self._history.expected_each(
            kinds_of(alloc.job), percents=drawn_percent(alloc.job_id, self.draws), elapsed=elapsed, limit=limit
        )
        return _SimulatedRun(amounts, latest, [begin + each for each in drawn])

    def _run_time(self, state: Snapshot, job: Waiting) -> _SimulatedRun:
        longest, found = job.limit or UNLIMITED, state.jobs.get(job.key)
        if found is None:
            return _SimulatedRun(job.asked, longest, (longest,) * self.draws)
        percents = drawn_percent(job.key[1], self.draws)
        drawn = self._history.expected_each(kinds_of(found), percents=percents, elapsed=0, limit=job.limit)
        return _SimulatedRun(job.asked, longest, drawn)


def _limit(alloc: Allocation, queue: BatchQueue) -> int:
    end = end_by_limit(alloc, queue)
    return end - alloc.create_time if end else 0


def _history(state: Snapshot, pool: str, queue: BatchQueue) -> RunTimes:
    """Run times of the pool's ended batch allocations."""
    times = RunTimes()
    ended = (
        (alloc.modify_index, alloc.id, alloc)
        for alloc in state.allocs.values()
        if alloc.client_status == status.CLIENT_COMPLETE
        and alloc.job is not None
        and alloc.job.type == status.JOB_BATCH
        and alloc.job.node_pool == pool
    )
    for _, _, alloc in sorted(ended)[-HISTORY_MAX:]:
        assert alloc.job is not None
        duration = max(0, alloc.modify_time - alloc.create_time)
        times.add(kinds_of(alloc.job), duration, limit=_limit(alloc, queue))
    return times
