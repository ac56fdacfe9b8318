"""The order of a pool's queue and what starts next: functions of the state and the time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.fsm.bookkeeping.queue_usage import usage_of_row
from yurt.queue.amounts import NOTHING, WEIGHT_ONE, Amounts, dominant_share
from yurt.queue.backfill import BackfillRules, boosted, with_boosted
from yurt.queue.decay import lifetime, used
from yurt.queue.dynamic_priority import Adjusted, Weights, dynamic_order
from yurt.queue.fair_order import Shares, fair_order
from yurt.queue.line import Line
from yurt.queue.waiting import JobKey, Waiting
from yurt.scheduler.capacity.pool_room import PoolRoom, Wanted
from yurt.server.queueing.entries import Entry, allocs_of_pool, capacity_of, held_by_tenant, run_limit
from yurt.state import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.batch_queue import BatchQueue, DynamicPriorityQueue

WINDOW: Final = 16
"""Jobs of a pool that the scheduler has at a time."""
RELEASES_MAX: Final = 4_000
"""Running allocations whose ends are looked at for a reservation: those that end first."""


class Promise(NamedTuple):
    """A job for which capacity is kept, and from when on it has that at the latest; 0: nobody can say."""

    key: JobKey
    start: int


class QueuedJobs(NamedTuple):
    """What the gate knows of the jobs of a pool."""

    entries: Mapping[JobKey, Entry]
    ready: Collection[JobKey]
    """Those that the scheduler has not seen since capacity changed for them."""
    in_flight: Sequence[Entry]


class Decision(NamedTuple):
    """The jobs that the scheduler gets now, in their order, and those for which capacity is kept."""

    release: tuple[JobKey, ...]
    promises: tuple[Promise, ...]


def used_amounts(state: Snapshot, pool: str, queue: BatchQueue, now: int) -> dict[tuple[str, ...], Amounts]:
    """By tenant: decayed usage for fair share, what is held now for the other types."""
    fair = queue.fair_share
    if fair is None:
        return held_by_tenant(state, pool, queue)
    rows = state.queue_usages.where("pool", pool)
    return {row.tenant: Amounts(*used(usage_of_row(row), now, row.half_life)) for row in rows}


def adjusted_order(
    state: Snapshot, pool: str, queue: DynamicPriorityQueue, waiting: Iterable[Waiting], now: int
) -> list[Adjusted]:
    """The order of a `dynamic_priority` queue, with what makes it up."""
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
    held = held_by_tenant(state, pool, BatchQueue(dynamic_priority=queue))
    return dynamic_order(waiting, held, weights, now=now)


def ordered(state: Snapshot, pool: str, queue: BatchQueue, line: Line, now: int) -> Iterable[Waiting]:
    """The jobs of a queue in their order; lazily for fair share, so the line must not change meanwhile."""
    if queue.dynamic_priority is not None:
        return [one.job for one in adjusted_order(state, pool, queue.dynamic_priority, line, now)]
    if queue.fair_share is None:
        return line.first_come()
    fair = queue.fair_share
    capacity = capacity_of(state, pool, queue)
    weights = {tuple(name.split("/", 1)): max(1, round(weight * WEIGHT_ONE)) for name, weight in fair.weights.items()}
    shares = Shares(capacity.times(lifetime(fair.half_life)), fair.half_life, weights)
    rules = BackfillRules(boost_after=fair.boost_after)
    oldest = next(iter(line.oldest()), None)
    first = None
    if oldest is not None and rules.boost_after and now - oldest.since >= rules.boost_after:
        part = _boosted_part(state, pool, capacity, rules.boost_after)
        first = boosted((oldest,), rules, now=now, held=part)
    return with_boosted(first, fair_order(line.bands, used_amounts(state, pool, queue, now), shares))


def _boosted_part(state: Snapshot, pool: str, capacity: Amounts, boost_after: int) -> float:
    """The part of the pool that jobs hold which once were boosted: it follows from when they came and started."""
    from yurt.queue.amounts import WHOLE
    from yurt.queue.charge import allocated_amounts

    total = NOTHING
    for alloc in allocs_of_pool(state, pool):
        if alloc.job is not None and alloc.create_time - alloc.job.submit_time >= boost_after > 0:
            total = total.plus(allocated_amounts(alloc, {}))
    return dominant_share(total, capacity) / WHOLE


def decide(state: Snapshot, pool: str, line: Line, jobs: QueuedJobs, *, now: int) -> Decision:
    """Which jobs the scheduler gets.

    Jobs that are in flight are counted first. A job that is not ready has been tried and found no room: it waits, and
    capacity is kept for it, as for one that does not fit.
    """
    entries, ready, in_flight = jobs
    row = state.node_pools.get(pool)
    queue = None if row is None else row.batch_queue
    if queue is None or not ready or len(in_flight) >= WINDOW:
        return Decision((), ())
    room = PoolRoom(state, pool)
    for entry in in_flight:
        room.take(entry.wanted)
    kept = _Reservations(state, pool, queue, now)
    release: list[JobKey] = []
    passed = 0
    for job in ordered(state, pool, queue, line, now):
        entry = entries[job.key]
        fits = room.has_room(entry.wanted)
        if fits and job.key in ready and kept.permits(entry):
            room.take(entry.wanted)
            release.append(job.key)
            if len(release) + len(in_flight) >= WINDOW:
                break
            continue
        if not fits and not _could_ever_fit(room, entry):
            # What no node of the pool could hold, even an empty one, blocks nobody; the scheduler says why.
            if job.key in ready:
                release.append(job.key)
            continue
        if fits and job.key not in ready:
            # Set aside: it has room and yet no node takes it (constraints, quota). It waits for other news.
            continue
        passed += 1
        kept.add(entry, in_flight=len(release))
        if passed > queue.backfill_depth or not queue.reservations:
            break
    return Decision(tuple(release), tuple(kept.promises))


def _could_ever_fit(room: PoolRoom, entry: Entry) -> bool:
    return any(room.total_places(one.ask) >= max(1, one.least) for one in entry.wanted)


class _Reserved(NamedTuple):
    """The pool at the time of a promise, without what the promised job takes, and the rows where it takes it."""

    room: PoolRoom
    rows: tuple[int, ...]
    start: int


class _Reservations:
    """What is kept for the first jobs that do not fit."""

    def __init__(self, state: Snapshot, pool: str, queue: BatchQueue, now: int) -> None:
        self.promises: list[Promise] = []
        self._state, self._pool, self._queue, self._now = state, pool, queue, now
        self._kept: list[_Reserved] = []
        self._is_closed = False
        self._ends: list[tuple[int, Allocation]] | None = None

    def permits(self, entry: Entry) -> bool:
        """Whether a job may start although others wait: it ends before, or leaves what they need wherever it goes."""
        if self._is_closed:
            return False
        end = self._now + entry.waiting.limit if entry.waiting.limit else 0
        late = [kept for kept in self._kept if not end or end > kept.start]
        if not all(kept.room.spares(kept.rows, one.ask, one.number) for kept in late for one in entry.wanted):
            return False
        for kept in late:
            for one in entry.wanted:
                kept.room.use_on(kept.rows, one.ask, one.number)
        return True

    def add(self, entry: Entry, *, in_flight: int) -> None:
        """Keep capacity for a job that does not fit, while there are fewer reservations than configured."""
        if len(self.promises) >= max(1, self._queue.reservations):
            return
        found = self._earliest(entry.wanted)
        self.promises.append(Promise(entry.waiting.key, 0 if found is None else found.start))
        if found is None:
            # Nobody can say when it fits, as what runs has no limit: only jobs that leave its nodes alone may pass.
            found = self._after(self._all_ends(), entry.wanted, 1 << 62)
        if found is None:
            self._is_closed = True
            return
        self._kept.append(found)

    def _earliest(self, wanted: Sequence[Wanted]) -> _Reserved | None:
        """The first end of a running allocation after which the job fits."""
        ends = self._limited_ends()
        if not ends:
            return None

        allocs = [alloc for _, alloc in ends]
        count = PoolRoom(self._state, self._pool).first_release(wanted, allocs)
        if count < 0:
            return None
        return self._after(allocs[:count], wanted, max(ends[count - 1][0], self._now))

    def _after(self, ended: Iterable[Allocation], wanted: Sequence[Wanted], start: int) -> _Reserved | None:
        room = PoolRoom(self._state, self._pool)
        room.release(ended)
        rows = room.take(wanted)
        return _Reserved(room, tuple(rows), start) if rows else None

    def _limited_ends(self) -> list[tuple[int, Allocation]]:
        if self._ends is None:
            limited = ((end, alloc) for alloc in self._all_ends() if (end := end_by_limit(alloc, self._queue)))
            self._ends = sorted(limited, key=lambda one: (one[0], one[1].id))[:RELEASES_MAX]
        return self._ends

    def _all_ends(self) -> list[Allocation]:
        return list(allocs_of_pool(self._state, self._pool))


def end_by_limit(alloc: Allocation, queue: BatchQueue) -> int:
    """When an allocation ends at the latest; 0: it has no limit."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    limit = 0 if group is None or alloc.job is None else group.max_run_duration or run_limit(alloc.job, queue)
    return alloc.create_time + limit if limit else 0
