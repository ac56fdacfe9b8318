"""Keeps rows of jobs and nodes up to date while clients watch them, and remembers recent changes.

Nothing is kept while nobody looks: the first who asks has the rows computed, in slices. From then on the changes of
each command mark rows as outdated, and the next reader has only these computed again. After `IDLE_S` without
anybody all is forgotten. Allocations are not kept: a list reads them from the state, and only those that changed are
noted.

Each refresh is a `Batch`: the rows that differ, as they were and as they are. Readers of the watch take the batches
after the index that they know. When one was dropped, or too much has changed at once, they must start again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from yurt.server.log.replica import Replica
from yurt.state import Change, Snapshot
from yurt.structs.alloc import Allocation

if TYPE_CHECKING:
    from yurt.readmodels.job_facts import JobFacts
    from yurt.readmodels.node_facts import NodeFacts

K = TypeVar("K", bound=Hashable)
F = TypeVar("F")

JobKey = tuple[str, str]

IDLE_S: Final = 120.0
PACE_S: Final = 0.25
"""The shortest interval between two updates of watch readers."""
SLOW_PACE_S: Final = 0.5
BUSY_ROWS: Final = 1_000
"""After a batch of this many rows, the next one is computed at the slow pace."""
BATCH_ROWS_MAX: Final = 20_000
"""Rows of all batches together, and rows marked for the next one."""
SLICE: Final = 100
"""Rows that are computed before others get the loop: a millisecond or two."""
_OF_JOB: Final[Mapping[str, Callable[[Any, Any], JobKey]]] = {
    "job_summaries": lambda key, row: key,
    "deployments": lambda key, row: (row.namespace, row.job_id),
    "evals": lambda key, row: (row.namespace, row.job_id),
}
"""The job of a row of a table other than that of the jobs."""


class Pair(NamedTuple):
    """A row before and after; None where it does not exist."""

    before: Any
    after: Any


class Batch(msgspec.Struct, frozen=True):
    """What changed up to an index."""

    index: int
    rows: Mapping[str, Mapping[Any, Pair]]
    """By the name of a kind, then by key."""

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(map(len, self.rows.values()))


class Marks:
    """What changed since the last batch."""

    __slots__ = ("allocs", "has_lost_allocs", "jobs", "nodes")

    def __init__(self) -> None:
        self.jobs: set[JobKey] = set()
        self.nodes: set[str] = set()
        self.allocs: dict[str, Allocation | None] = {}
        """Allocations as they were before."""
        self.has_lost_allocs = False
        """More allocations changed than are noted."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes or self.allocs or self.has_lost_allocs)

    def mark(self, change: Change) -> None:
        """Note what a changed row makes outdated."""
        table, key, before, after = change
        if table == "allocs":
            self._mark_alloc(key, before, after)
        elif table == "jobs":
            self.jobs.add(key)  # type: ignore[arg-type]
        elif table == "nodes":
            self.nodes.add(key)  # type: ignore[arg-type]
        elif (job_of := _OF_JOB.get(table)) is not None:
            self.jobs.add(job_of(key, before if after is None else after))

    def add(self, older: Marks) -> None:
        """Record that earlier recorded changes were recorded too."""
        self.jobs |= older.jobs
        self.nodes |= older.nodes
        self.allocs |= older.allocs
        self.has_lost_allocs |= older.has_lost_allocs

    def _mark_alloc(self, key: Any, before: Allocation | None, after: Allocation | None) -> None:
        for row in (before, after):
            if row is not None:
                self.jobs.add((row.namespace, row.job_id))
                self.nodes.add(row.node_id)
        if len(self.allocs) >= BATCH_ROWS_MAX:
            self.allocs.clear()
            self.has_lost_allocs = True
        if not self.has_lost_allocs:
            self.allocs.setdefault(key, before)


class ReadModels:
    """The rows of one server."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._refreshing = asyncio.Lock()
        self._is_active = False
        self._used_s = 0.0
        self._readers = 0
        self._resets = 0
        self._forget()

    def _forget(self) -> None:
        self.index = 0
        """The index of the state that the rows show."""
        self.jobs: dict[JobKey, JobFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self._is_complete = False
        """All rows were computed once."""
        self._marks = Marks()
        self._batches: deque[Batch] = deque()
        self._complete_from = 0
        """All changes after this index are in the batches."""
        self._next_s = 0.0
        """When the next refresh for the readers of the watch may be."""
        self._changed: asyncio.Event | None = None

    # What the server tells.

    def observe(self, changes: Iterable[Change]) -> None:
        """A command was applied."""
        if not self._is_active:
            return
        if not self._readers and self._replica.env.monotonic() - self._used_s > IDLE_S:
            self.reset()
            return
        for change in changes:
            self._marks.mark(change)
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def reset(self) -> None:
        """Drop everything, without readers or after another state was loaded."""
        waiting = self._changed
        self._is_active = False
        self._resets += 1
        self._forget()
        if waiting is not None:
            waiting.set()

    # What readers ask.

    async def refreshed(self) -> Snapshot:
        """Bring the rows up to date; the state that they show."""
        self._used_s = self._replica.env.monotonic()
        async with self._refreshing:
            return await self._refresh()

    def __enter__(self) -> ReadModels:
        """Register a reader: nothing is forgotten until it leaves."""
        self._readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._readers -= 1
        self._used_s = self._replica.env.monotonic()

    async def after(self, index: int) -> tuple[Batch, ...] | None:
        """The batches after an index, once there are some; None when changes after it are not available any more."""
        while True:
            if self._is_complete and index < self._complete_from:
                return None
            batches = tuple(batch for batch in self._batches if batch.index > index)
            if batches:
                return batches
            if self._is_complete and not self._marks:
                self._changed = self._changed or asyncio.Event()
                await self._changed.wait()
            await self._refresh_in_turn()

    async def _refresh_in_turn(self) -> None:
        """Refresh once for all waiting readers, at most at the permitted pace."""
        async with self._refreshing:
            if self._is_complete and not self._marks:
                return  # another one has done it
            env = self._replica.env
            remaining_s = self._next_s - env.monotonic()
            if remaining_s > 0 and self._is_complete:
                await env.sleep(remaining_s)
            await self._refresh()

    async def _refresh(self) -> Snapshot:
        """Compute outdated rows; the caller holds the lock."""
        if not self._is_complete:
            return await self._begin()
        state, marks, resets = self._replica.state, self._marks, self._resets
        self._marks = Marks()
        try:
            jobs = await self._compute(state, _rows_of().job, self.jobs, marks.jobs)
            nodes = await self._compute(state, _rows_of().node, self.nodes, marks.nodes)
        except BaseException:
            self._marks.add(marks)  # who asked has left: the next one computes the same
            raise
        if self._resets != resets:
            return await self._begin()  # another state was loaded between two slices
        _store(self.jobs, jobs)
        _store(self.nodes, nodes)
        allocs = {key: Pair(before, state.allocs.get(key)) for key, before in marks.allocs.items()}
        self.index = state.index
        batch = Batch(state.index, {"jobs": jobs, "nodes": nodes, "allocations": allocs})
        self._keep(batch, has_lost=marks.has_lost_allocs)
        return state

    def _keep(self, batch: Batch, *, has_lost: bool) -> None:
        self._next_s = self._replica.env.monotonic() + (SLOW_PACE_S if batch.size > BUSY_ROWS else PACE_S)
        if has_lost:
            self._batches.clear()
            self._complete_from = batch.index
            return
        if batch.size:
            self._batches.append(batch)
        while sum(each.size for each in self._batches) > BATCH_ROWS_MAX:
            self._complete_from = self._batches.popleft().index

    async def _begin(self) -> Snapshot:
        """Compute all rows; changes are marked meanwhile."""
        while True:
            self._forget()
            self._is_active, resets, state = True, self._resets, self._replica.state
            jobs = await self._compute(state, _rows_of().job, {}, state.jobs.keys())
            nodes = await self._compute(state, _rows_of().node, {}, state.nodes.keys())
            if self._resets == resets:
                break
        _store(self.jobs, jobs)
        _store(self.nodes, nodes)
        self._is_complete = True
        self.index = self._complete_from = state.index
        self._used_s = self._replica.env.monotonic()
        return state

    async def _compute(
        self, state: Snapshot, row_of: Callable[[Snapshot, K], F | None], rows: Mapping[K, F], keys: Iterable[K]
    ) -> dict[K, Pair]:
        """Recompute rows; returns those that differ, before and after."""
        changed: dict[K, Pair] = {}
        async for part in self._replica.turns.slices(keys, SLICE):
            for key in part:
                before, after = rows.get(key), row_of(state, key)
                if before != after:
                    changed[key] = Pair(before, after)
        return changed


def _store(rows: dict[K, F], changed: Mapping[K, Pair]) -> None:
    for key, pair in changed.items():
        if pair.after is None:
            rows.pop(key, None)
        else:
            rows[key] = pair.after


class _RowsOf(msgspec.Struct, frozen=True):
    """The functions that compute a row."""

    job: Callable[[Snapshot, JobKey], JobFacts | None]
    node: Callable[[Snapshot, str], NodeFacts | None]


@cache
def _rows_of() -> _RowsOf:
    """Imported with the first reader: an agent whose read models nobody asks for does without them."""
    from yurt.readmodels.job_facts import job_facts
    from yurt.readmodels.node_facts import node_facts

    def job_row(state: Snapshot, key: JobKey) -> JobFacts | None:
        job = state.jobs.get(key)
        return None if job is None else job_facts(state, job)

    def node_row(state: Snapshot, key: str) -> NodeFacts | None:
        node = state.nodes.get(key)
        return None if node is None else node_facts(state, node)

    return _RowsOf(job_row, node_row)
