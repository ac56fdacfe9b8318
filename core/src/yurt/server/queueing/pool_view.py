"""The part of the state that queue decisions need, maintained between decisions.

All of it follows from the state: `PoolView` sums it up, `follow` changes it by what a command changed, and both come to
the same (tests/server/test_pool_view.py). So a decision costs what changed since the one before it, not what the pool
holds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from yurt.fsm.bookkeeping.queue_usage import usage_of_row
from yurt.queue.amounts import NOTHING, WEIGHT_ONE, Amounts
from yurt.queue.charge import allocated_amounts, tenant_of
from yurt.queue.decay import lifetime, used
from yurt.queue.fair_order import Delays, Shares, delays_of
from yurt.queue.job_queue import ChangeLog
from yurt.queue.run_times import RunTimes
from yurt.queue.waiting_job import Path
from yurt.scheduler.capacity.pool_capacity import PoolCapacity
from yurt.server.queueing.entries import capacity_of, end_by_limit, kinds_of, metadata_key, was_boosted
from yurt.state import Change, Snapshot
from yurt.state.quota_tree import weights_of_namespaces
from yurt.state.usage import is_using
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.predicates import is_server_terminal
from yurt.structs.queueing.batch_queue import BatchQueue, FairShareQueue
from yurt.structs.queueing.usage import QueueUsage

TICKS: Final = 256
"""The number of times per half-life at which usage is recomputed without changes; it ages by 0.3 % per tick."""
LIKELY: Final = 80
"""The percentage of comparable runs whose run time a run without a limit is assumed not to exceed."""
REMEMBERED_MAX: Final = 16


class _Run(NamedTuple):
    """An allocation that runs, as it counts."""

    alloc: Allocation
    end: int
    """The latest end; 0: unlimited."""
    tenant: Path
    amounts: Amounts
    is_batch: bool
    was_boosted: bool


class _Runs:
    """The running allocations of a pool, their ends by run time limits, and their total usage."""

    def __init__(self, queue: BatchQueue) -> None:
        self.version = 0
        """Rises with each change of what runs."""
        self.usage: dict[Path, Amounts] = {}
        self.usage_by_account: dict[str, Amounts] = {}
        self.account_changes = ChangeLog()
        self.boosted = NOTHING
        self.by_id: dict[str, _Run] = {}
        self.ends: list[tuple[int, str]] = []
        self.unlimited: set[str] = set()
        self._queue = queue
        self._prices: Mapping[str, float] = queue.fair_share.prices if queue.fair_share is not None else {}
        self._key = metadata_key(queue)

    def add(self, alloc: Allocation) -> None:
        """Count an allocation, if it uses its node."""
        if not is_using(alloc):
            return
        job = alloc.job
        run = _Run(
            alloc=alloc,
            end=end_by_limit(alloc, self._queue),
            tenant=() if job is None else tenant_of(job, self._key),
            amounts=allocated_amounts(alloc, self._prices),
            is_batch=job is not None and job.type == status.JOB_BATCH,
            was_boosted=was_boosted(alloc, self._queue),
        )
        self.version += 1
        self.by_id[alloc.id] = run
        if run.end:
            insort(self.ends, (run.end, alloc.id))
        elif job is not None:
            self.unlimited.add(alloc.id)
        self._count(run, 1)

    def remove(self, alloc_id: str) -> None:
        """Remove an allocation."""
        run = self.by_id.pop(alloc_id, None)
        if run is None:
            return
        self.version += 1
        self.unlimited.discard(alloc_id)
        if run.end:
            del self.ends[bisect_left(self.ends, (run.end, alloc_id))]
        self._count(run, -1)

    def replace(self, alloc: Allocation) -> bool:
        """Store the newest row of an allocation whose usage is unchanged; False when it is unknown."""
        run = self.by_id.get(alloc.id)
        if run is not None:
            self.by_id[alloc.id] = run._replace(alloc=alloc)
        return run is not None

    def _count(self, run: _Run, sign: int) -> None:
        if run.was_boosted:
            self.boosted = self.boosted.plus(run.amounts, sign)
        if run.is_batch:
            _sum_up(self.usage, run.tenant, run.amounts, sign)
            _sum_up(self.usage_by_account, run.tenant[0], run.amounts, sign)
            self.account_changes.note(run.tenant[0])


class PoolView:
    """The free capacity of a pool, its running allocations with their ends, and its tenants' usage."""

    def __init__(self, state: Snapshot, pool: str, queue: BatchQueue) -> None:
        self.pool, self.queue, self.state = pool, queue, state
        self._runs = _Runs(queue)
        self._history = RunTimes()
        self._delays = _DelaysOfUsage(state, pool, queue)
        self._remembered: dict[Hashable, Any] = {}
        self._changed_nodes: set[str] = set()
        self._free_capacity: PoolCapacity | None = None
        self._weights: tuple[Mapping[str, int], Mapping[Path, int]] | None = None
        self._node_ids = {node.id for node in state.nodes.values() if node.node_pool == pool}
        rows = [row for node_id in self._node_ids for row in state.allocs.each_where("node", node_id)]
        for alloc in rows:
            self._runs.add(alloc)
        for alloc in sorted((row for row in rows if _has_run(row)), key=lambda row: (row.modify_index, row.id)):
            self._learn(alloc)

    def follow(self, changes: Iterable[Change]) -> bool:
        """Apply a command's changes; False when the view must be rebuilt."""
        for change in changes:
            if change.table == "allocs":
                self._follow_alloc(change.before, change.after)
            elif change.table == "queue_usages":
                self._delays.follow(change.before, change.after)
            elif change.table == "nodes" and self._is_own(change.before) != self._is_own(change.after):
                return False
        return True

    def show(self, state: Snapshot) -> None:
        """Set the present state, whose changes have all been followed."""
        self.state = state

    def free_capacity(self) -> PoolCapacity:
        """A copy of the free capacity, for planning."""
        if self._free_capacity is None or not self._free_capacity.follow(self.state, self._changed_nodes):
            self._free_capacity = PoolCapacity(self.state, self.pool)
        self._changed_nodes.clear()
        return self._free_capacity.copy()

    @property
    def capacity(self) -> Amounts:
        """The capacity of the ready nodes."""
        return capacity_of(self.state, self.pool, self.queue)

    @property
    def usage(self) -> Mapping[Path, Amounts]:
        """The present usage of each tenant's batch jobs, GPUs by their price; tenants without usage are missing."""
        return self._runs.usage

    @property
    def usage_by_account(self) -> Mapping[str, Amounts]:
        """As `usage`, by account."""
        return self._runs.usage_by_account

    @property
    def shares(self) -> Shares:
        """The accounts' usage and their parts of the pool."""
        return Shares(self.capacity, self.weights, self.usage_by_account, self._runs.account_changes)

    @property
    def boosted(self) -> Amounts:
        """The amounts held by jobs that were boosted when they started."""
        return self._runs.boosted

    @property
    def weights(self) -> Mapping[Path, int]:
        """The weights of tenants in thousandths: those that the queue names, else those of quotas."""
        fair = self.queue.fair_share
        if fair is None:
            return {}
        of_quotas = weights_of_namespaces(self.state)
        if self._weights is None or self._weights[0] is not of_quotas:
            merged: dict[Path, int] = {(name,): weight for name, weight in of_quotas.items()}
            merged |= weights_of(fair)
            self._weights = (of_quotas, merged)
        return self._weights[1]

    def delays(self, now: int) -> Mapping[Path, int]:
        """By how much usage puts off the turns of tenants: those that changed since the last call."""
        return self._delays.changed(now, self.capacity, self.weights)

    @property
    def has_unlimited(self) -> bool:
        """Whether anything without a run time limit is running."""
        return bool(self._runs.unlimited)

    def ends(self, most: int) -> list[tuple[int, Allocation]]:
        """The allocations that end first by their limits, with the latest end of each."""
        return [(end, self._runs.by_id[alloc_id].alloc) for end, alloc_id in self._runs.ends[:most]]

    def has_more_ends(self, most: int) -> bool:
        """Whether more allocations end, by their limits or as expected, than this number."""
        return len(self._runs.ends) + len(self._runs.unlimited) > most

    def expected_ends(self, now: int, most: int) -> list[tuple[int, Allocation]]:
        """As `ends`, with the expected ends of allocations without a limit."""
        ends = self._runs.ends[:most]
        for alloc_id in self._runs.unlimited:
            alloc = self._runs.by_id[alloc_id].alloc
            assert alloc.job is not None
            whole = self.expected_run_time(alloc.job, elapsed=max(0, now - alloc.create_time))
            ends.append((alloc.create_time + whole, alloc_id))
        return [(end, self._runs.by_id[alloc_id].alloc) for end, alloc_id in sorted(ends)[:most]]

    def expected_run_time(self, job: Job, *, elapsed: int = 0) -> int:
        """The run time that a job without a limit probably does not exceed."""
        return self._history.expected(kinds_of(job), percent=LIKELY, elapsed=elapsed, limit=0)

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of what runs and may be preempted; None when nothing does."""
        lowest: int | None = self.remembered("lowest priority", self._lowest_priority)
        return lowest

    def _lowest_priority(self) -> int | None:
        jobs = [run.alloc.job for run in self._runs.by_id.values() if not is_server_terminal(run.alloc)]
        return min((job.priority for job in jobs if job is not None), default=None)

    def runs(self) -> Iterable[tuple[Allocation, int, Amounts]]:
        """The running allocations, each with its latest end (0: unlimited) and what it uses."""
        return ((run.alloc, run.end, run.amounts) for run in self._runs.by_id.values())

    def running(self) -> list[Allocation]:
        """All running allocations, unordered."""
        return [run.alloc for run in self._runs.by_id.values()]

    def remembered(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A result that is cached until something in the pool changes."""
        stamp = (self._runs.version, self.state.columns.nodes)
        cached = self._remembered.get(key)
        if cached is None or cached[0] != stamp:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            cached = self._remembered[key] = (stamp, make())
        return cached[1]

    def _follow_alloc(self, before: Allocation | None, after: Allocation | None) -> None:
        row = after if after is not None else before
        assert row is not None
        if row.node_id not in self._node_ids:
            return
        if before is not None and after is not None and _count_alike(before, after) and self._runs.replace(after):
            return
        self._changed_nodes.add(row.node_id)
        self._runs.remove(row.id)
        if after is not None:
            self._runs.add(after)
            if _has_run(after) and not (before is not None and _has_run(before)):
                self._learn(after)

    def _learn(self, alloc: Allocation) -> None:
        assert alloc.job is not None
        self._history.add(kinds_of(alloc.job), max(0, alloc.modify_time - alloc.create_time))

    def _is_own(self, node: Node | None) -> bool:
        """Whether a node belongs to the pool; `PoolCapacity` reads its capacity itself."""
        return node is not None and node.node_pool == self.pool


def weights_of(fair: FairShareQueue) -> dict[Path, int]:
    """The weights of tenants in thousandths, by path."""
    return {tuple(name.split("/", 1)): max(1, round(weight * WEIGHT_ONE)) for name, weight in fair.weights.items()}


class _DelaysOfUsage:
    """By how much the decayed usage of tenants puts off their turns."""

    def __init__(self, state: Snapshot, pool: str, queue: BatchQueue) -> None:
        self._fair = queue.fair_share
        self._pool = pool
        self._rows: dict[str, dict[Path, QueueUsage]] = {}
        self._changed: set[str] = set()
        self._basis: tuple[int, Amounts, Mapping[Path, int]] | None = None
        for row in state.queue_usages.where("pool", pool):
            self.follow(None, row)

    def follow(self, before: QueueUsage | None, after: QueueUsage | None) -> None:
        row = after if after is not None else before
        assert row is not None
        if row.pool != self._pool:
            return
        account = row.tenant[0]
        self._changed.add(account)
        rows = self._rows.setdefault(account, {})
        if after is not None:
            rows[row.tenant] = after
        else:
            rows.pop(row.tenant, None)

    def changed(self, now: int, capacity: Amounts, weights: Mapping[Path, int]) -> dict[Path, int]:
        """The delays that changed since the last call."""
        fair = self._fair
        if fair is None:
            return {}
        tick = now - now % max(1, fair.half_life // TICKS)
        is_all = self._basis != (tick, capacity, weights)
        self._basis = (tick, capacity, weights)
        delays = Delays(capacity.times(lifetime(fair.half_life)), fair.usage_delay)
        by_path: dict[Path, int] = {}
        for account in list(self._rows) if is_all else sorted(self._changed):
            rows = self._rows[account].items()
            amounts = {path: Amounts(*used(usage_of_row(row), tick, row.half_life)) for path, row in rows}
            by_path |= delays_of(amounts, delays, weights)
        self._changed.clear()
        return by_path


def _sum_up(sums: dict[Any, Amounts], key: Hashable, amounts: Amounts, sign: int) -> None:
    remaining = sums.get(key, NOTHING).plus(amounts, sign)
    if remaining == NOTHING:
        sums.pop(key, None)
    else:
        sums[key] = remaining


def _has_run(alloc: Allocation) -> bool:
    """Whether the run time of an allocation is representative of others."""
    is_complete = alloc.client_status == status.CLIENT_COMPLETE and alloc.desired_status != status.DESIRED_EVICT
    return is_complete and alloc.job is not None and alloc.job.type == status.JOB_BATCH


def _count_alike(before: Allocation, after: Allocation) -> bool:
    """Whether an allocation runs as before."""
    is_running = is_using(before) and is_using(after)
    return is_running and before.job is after.job and before.allocated_resources is after.allocated_resources
