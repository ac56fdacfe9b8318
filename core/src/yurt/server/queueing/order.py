"""The order of a pool's queue and the next starts: functions of the state and the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, WHOLE, Amounts, dominant_share
from yurt.queue.backfill import BackfillRules, boosted, with_boosted
from yurt.queue.dynamic_priority import Adjusted, Weights, dynamic_order
from yurt.queue.fair_order import fair_order
from yurt.queue.job_queue import JobQueue
from yurt.queue.waiting_job import JobKey, Path, Waiting
from yurt.scheduler.capacity.pool_capacity import PendingAllocs, PoolCapacity
from yurt.scheduler.placing.preemption import PRIORITY_DELTA
from yurt.server.queueing.entries import QueuedJobs, QueueEntry
from yurt.server.queueing.guaranteed import GuaranteedJobs
from yurt.server.queueing.pool_view import PoolView
from yurt.server.queueing.reservations import Promise, ReleasedJob, Reservations
from yurt.structs.queueing.batch_queue import DynamicPriorityQueue
from yurt.structs.status import SERVER_TERMINAL

_Tenant = TypeVar("_Tenant", str, Path)
WINDOW: Final = 16
"""The number of a pool's jobs that the scheduler has at a time."""


class QueueDecision(NamedTuple):
    """The jobs released to the scheduler now, in order, and those for which capacity is reserved."""

    release: tuple[JobKey, ...]
    promises: tuple[Promise, ...]


def adjusted_order(
    queue: DynamicPriorityQueue, waiting: Iterable[Waiting], usage: Mapping[Path, Amounts], now: int
) -> list[Adjusted]:
    """The order of a `dynamic_priority` queue, with the terms of each priority."""
    weights = Weights(
        fairshare=queue.fairshare_weight,
        age=queue.age_weight,
        max_age=queue.max_age,
        cpu=queue.cpu_weight,
        max_cpu=queue.max_cpu,
        memory=queue.memory_weight,
        max_memory=queue.max_memory,
        gpu=queue.gpu_weight,
        max_gpu=queue.max_gpu * WEIGHT_ONE * WEIGHT_ONE,
    )
    return dynamic_order(waiting, usage, weights, now=now)


def ordered(view: PoolView, line: JobQueue, now: int, in_flight: Sequence[QueueEntry] = ()) -> Iterable[Waiting]:
    """The jobs of a queue in order, computed lazily; the line must not change meanwhile.

    The requests of jobs in flight count as usage of their tenants: these jobs are about to run.
    """
    queue, flying = view.queue, [entry.waiting for entry in in_flight]
    if queue.dynamic_priority is not None:
        usage = _with_in_flight(view.usage, ((job.tenant, job.asked) for job in flying))
        return [one.job for one in adjusted_order(queue.dynamic_priority, line, usage, now)]
    if queue.fair_share is None:
        return line.first_come()
    line.delay(view.delays(now))
    in_use = view.boosted
    for job in flying:
        in_use = in_use.plus(job.asked) if 0 < job.boost_at <= now else in_use
    first = boosted(
        line.next_boost(), BackfillRules(), now=now, part_in_use=dominant_share(in_use, view.capacity) / WHOLE
    )
    flying_amounts = _with_in_flight({}, ((job.tenant[0], job.asked) for job in flying))
    return with_boosted(first, fair_order(line, view.shares._replace(in_flight=flying_amounts)))


def _with_in_flight(
    usage: Mapping[_Tenant, Amounts], added: Iterable[tuple[_Tenant, Amounts]]
) -> Mapping[_Tenant, Amounts]:
    """The usage of tenants plus the requests of jobs in flight."""
    total: dict[_Tenant, Amounts] = {}
    for tenant, amounts in added:
        if amounts != NOTHING:
            total[tenant] = (total.get(tenant) or usage.get(tenant, NOTHING)).plus(amounts)
    return {**usage, **total} if usage else total


def decide(view: PoolView, line: JobQueue, jobs: QueuedJobs, guaranteed: GuaranteedJobs, *, now: int) -> QueueDecision:
    """The jobs to release to the scheduler: those within guarantees, then the others in the order of the queue.

    Jobs that are in flight are counted first. A job that is not ready has been tried and found no capacity: it waits,
    and capacity is kept for it, as for one that does not fit.
    """
    entries, ready, in_flight = jobs.entries, jobs.ready, jobs.in_flight
    if not ready or len(in_flight) >= WINDOW:
        return QueueDecision((), ())
    free_capacity = view.free_capacity()
    running = [ReleasedJob(entry, tuple(free_capacity.plan(entry.demands))) for entry in in_flight]
    walk = _QueueWalk(view, line, jobs, guaranteed, free_capacity)
    if not walk.may_start():
        return QueueDecision((), ())
    reservations = Reservations(view, now, running)
    release: list[JobKey] = []
    passed = 0
    for job in walk.jobs(now):
        entry = entries[job.key]
        fits = free_capacity.has_capacity(entry.demands)
        if fits and job.key in ready and reservations.permits(entry):
            reservations.note_release(ReleasedJob(entry, tuple(free_capacity.plan(entry.demands))))
            release.append(job.key)
            if len(release) + len(in_flight) >= WINDOW:
                break
            if not walk.may_start():
                break
            continue
        if not fits and not could_ever_fit(free_capacity, entry):
            # What no node of the pool could hold, even an empty one, blocks nobody; the scheduler says why.
            if job.key in ready:
                release.append(job.key)
            continue
        if not fits and job.key in ready and len(release) + len(in_flight) < WINDOW and walk.frees_capacity(entry):
            # The scheduler chooses the victims, and the job gets their capacity in the same plan.
            release.append(job.key)
            if len(release) + len(in_flight) >= WINDOW:
                break
            continue
        if fits and job.key not in ready:
            # Set aside: it fits and yet no node takes it (constraints, quota). It waits for other changes.
            continue
        passed += 1
        reservations.add(entry)
        if passed > view.queue.backfill_depth or not view.queue.reservations:
            break
    return QueueDecision(tuple(release), tuple(reservations.promises))


class _QueueWalk:
    """The jobs of one decision in their order, and whether any of those to come may start."""

    def __init__(
        self,
        view: PoolView,
        line: JobQueue,
        jobs: QueuedJobs,
        guaranteed: GuaranteedJobs,
        free_capacity: PoolCapacity,
    ) -> None:
        self._view, self._line, self._jobs = view, line, jobs
        self._guaranteed = guaranteed
        self._preempting = Preempting(view)
        self._free_capacity = free_capacity
        self._is_first = True

    def jobs(self, now: int) -> Iterator[Waiting]:
        """The jobs within guarantees, then the others, unless none of them may start."""
        first: set[JobKey] = set()
        for job in self._guaranteed.first(self._line, self._jobs):
            first.add(job.key)
            yield job
        self._is_first = False
        if self.may_start():
            yield from (job for job in self._others(now) if job.key not in first)

    def _others(self, now: int) -> Iterable[Waiting]:
        return ordered(self._view, self._line, now, self._jobs.in_flight)

    def may_start(self) -> bool:
        """Whether there is anything to decide: some job fits, may preempt, or must be refused by the scheduler."""
        is_guaranteed = self._is_first and self._guaranteed.is_possible
        shapes, free = self._jobs.shapes, self._free_capacity
        if is_guaranteed or self._preempting.is_possible or shapes is None:
            return True
        return any(free.has_capacity(demands) or not _fits_empty(free, demands) for demands in shapes.values())

    def frees_capacity(self, entry: QueueEntry) -> bool:
        """Whether a job may fit once others have ended for it."""
        return self._guaranteed.frees_capacity(entry) or self._preempting.frees_capacity(entry)


class Preempting:
    """Which waiting jobs could start in the place of others that run."""

    def __init__(self, view: PoolView) -> None:
        self._view = view
        config = view.state.scheduler_config.preemption_config
        lowest = view.lowest_priority if config.batch_scheduler_enabled else None
        self._least = None if lowest is None else lowest + PRIORITY_DELTA

    @property
    def is_possible(self) -> bool:
        """Whether a job of any priority could preempt something."""
        return self._least is not None

    def frees_capacity(self, entry: QueueEntry) -> bool:
        """Whether a job fits once everything is gone that it may preempt, as far as the sizes of nodes tell."""
        priority = entry.job.priority
        if self._least is None or priority < self._least:
            return False
        shape = tuple((one.ask.signature, one.number, one.least) for one in entry.demands)
        answer: bool = self._view.remembered(("preempting", shape, priority), lambda: self._frees(entry, priority))
        return answer

    def _frees(self, entry: QueueEntry, priority: int) -> bool:
        victims = [
            alloc
            for alloc in self._view.running()
            if alloc.job is not None
            and alloc.job.priority <= priority - PRIORITY_DELTA
            and alloc.desired_status not in SERVER_TERMINAL
        ]
        free_capacity = self._view.free_capacity()
        free_capacity.release(victims)
        return bool(victims) and free_capacity.has_capacity(entry.demands)


def could_ever_fit(free_capacity: PoolCapacity, entry: QueueEntry) -> bool:
    """Whether a job fits into the pool's empty nodes."""
    return _fits_empty(free_capacity, entry.demands)


def _fits_empty(free_capacity: PoolCapacity, demands: Iterable[PendingAllocs]) -> bool:
    return any(free_capacity.total_places(one.ask) >= max(1, one.least) for one in demands)
