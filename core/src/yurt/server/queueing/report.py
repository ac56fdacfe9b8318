"""Queue reports: positions, reasons, expected starts and tenants' usage; functions of the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    latest: Mapping[JobKey, int]


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
    forecast = _forecast(state, pool, queue, order, running, now)
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
                latest_start=forecast.latest.get(job.key, 0) if is_queued else 0,
            )
        )
    return shown


def forecasts(state: Snapshot, pool: str, now: int) -> dict[JobKey, Forecast]:
    """The uncorrected expected starts of the jobs in a pool's queue; unknown ones are missing."""
    queue = _queue(state, pool)
    if queue is None:
        return {}
    _, view, order, _ = _order(state, pool, queue, now)
    found = _forecast(state, pool, queue, order, view.running(), now)
    return {
        key: Forecast(now, likely, found.by.get(key, 0), found.latest.get(key, 0))
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
            return "blocked", "there is room, but no node meets its constraints; see `yurt job why`"
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
    state: Snapshot, pool: str, queue: BatchQueue, order: Sequence[Waiting], running: Sequence[Allocation], now: int
) -> _Forecast:
    """Expected starts by run times of the past, and by declared limits."""
    simulated = _Simulated(state, pool, queue, order, running, now)
    draws = draws_of(len(simulated.first))
    drawn = start_quantiles([simulated.starts(draw, draws) for draw in range(draws)])
    latest = {key: start for key, start in simulated.starts(0, 0).items() if start < now + UNLIMITED // 2}
    return _Forecast(drawn.likely, drawn.by, latest)


class _Simulated:
    """The inputs of the simulations of a forecast."""

    def __init__(
        self, state: Snapshot, pool: str, queue: BatchQueue, order: Sequence[Waiting], running: Sequence[Allocation],
        now: int,
    ) -> None:  # fmt: skip
        from yurt.queue.charge import allocated_amounts

        self._now, self._queue = now, queue
        self._history = _history(state, pool, queue)
        prices = queue.fair_share.prices if queue.fair_share is not None else {}
        self._running = [(alloc, tuple(allocated_amounts(alloc, prices))) for alloc in running]
        capacity = capacity_of(state, pool, queue)
        used = NOTHING
        for _, amounts in self._running:
            used = used.plus(Amounts(*amounts))
        self._free = tuple(capacity.plus(used, -1))
        self.first = [job for job in order[:FORECASTS_MAX] if job.asked.fits_in(capacity)]
        """The jobs whose starts are forecast."""
        self._kinds = {job.key: kinds_of(found) for job in self.first if (found := state.jobs.get(job.key)) is not None}

    def starts(self, draw: int, draws: int) -> dict[JobKey, int]:
        """The starts in one draw; with `draws` 0, those by declared limits alone."""
        found = expected_starts(
            self.first,
            now=self._now,
            free=self._free,
            ends=[(self._end(alloc, draw, draws), amounts) for alloc, amounts in self._running],
            vector=lambda job: tuple(job.asked),
            run_time=lambda job: self._run_time(job, draw, draws),
        )
        return {key: start for key, start in found.items() if start < self._now + UNLIMITED // 2}

    def _end(self, alloc: Allocation, draw: int, draws: int) -> int:
        elapsed, limit = max(0, self._now - alloc.create_time), _limit(alloc, self._queue)
        if not draws or alloc.job is None:
            return alloc.create_time + max(elapsed, limit or UNLIMITED)
        percent = drawn_percent(alloc.job_id, draws)[draw]
        kinds = kinds_of(alloc.job)
        return alloc.create_time + self._history.expected(kinds, percent=percent, elapsed=elapsed, limit=limit)

    def _run_time(self, job: Waiting, draw: int, draws: int) -> int:
        kinds = self._kinds.get(job.key)
        if not draws or kinds is None:
            return job.limit or UNLIMITED
        percent = drawn_percent(job.key[1], draws)[draw]
        return self._history.expected(kinds, percent=percent, elapsed=0, limit=job.limit)


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
