"""The gate before the evaluation broker: in pools with a queue, the order decides which evaluation is scheduled next.

Without it, each allocation that ends would wake every evaluation that could use the room, and the scheduler would try
them by priority, then by chance. An evaluation of a queued job stands here until the order lets it through, at most
`WINDOW` of a pool at a time; what comes back without a place waits here again. The gate holds nothing that is not in
the state: a new leader builds it from the evaluations that have not ended.

Places of a job: *ready* (an evaluation waits here), *in flight* (the broker has it), *tried* (blocked: it was scheduled
and found no room; it is ready again once capacity that it could use appears).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from yurt.queue.amounts import NOTHING
from yurt.queue.job_queue import JobQueue
from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.capacity.pool_capacity import PendingAllocs
from yurt.server.queueing.entries import QueuedJobs, QueueEntry, entry_of, queue_of, queued_job
from yurt.server.queueing.guarantee_ledger import GuaranteedLine, GuaranteeLedger
from yurt.server.queueing.guaranteed import GuaranteedJobs
from yurt.server.queueing.order import QueueDecision, decide
from yurt.server.queueing.pool_view import PoolView
from yurt.server.queueing.reservations import Promise
from yurt.state import Changes, Snapshot
from yurt.state.quota_tree import QuotaTree
from yurt.structs.evaluation import Evaluation

SHAPES_MAX: Final = 64
"""The number of different requests up to which each is tested before the walk over the order."""


class _PoolGate:
    """The jobs that wait for a pool."""

    def __init__(self) -> None:
        self.line = JobQueue()
        self.ready: set[JobKey] = set()
        self.shapes: dict[object, tuple[PendingAllocs, ...]] = {}
        self.view: PoolView | None = None
        self.guaranteed: GuaranteedLine | None = None
        self._counts: Counter[object] = Counter()

    def put(self, entry: QueueEntry) -> None:
        """Add a waiting job."""
        self.line.put(entry.waiting)
        if self.guaranteed is not None:
            self.guaranteed.put(entry.waiting)
        shape = _shape(entry)
        self._counts[shape] += 1
        self.shapes[shape] = entry.demands

    def remove(self, entry: QueueEntry) -> None:
        """Remove a job from the waiting ones."""
        self.line.remove(entry.waiting.key)
        if self.guaranteed is not None:
            self.guaranteed.remove(entry.waiting)
        self.ready.discard(entry.waiting.key)
        shape = _shape(entry)
        self._counts[shape] -= 1
        if not self._counts[shape]:
            del self._counts[shape], self.shapes[shape]

    def view_of(self, state: Snapshot, pool: str) -> PoolView | None:
        """The part of the state that decisions need; None if the pool has no queue."""
        queue = queue_of(state, pool)
        if queue is None:
            return None
        if self.view is None or self.view.queue is not queue:
            self.view = PoolView(state, pool, queue)
            # A new view tells the delays of those who have used something; others may have had one before.
            self.line.delay(dict.fromkeys(self.line.delays, 0))
        self.view.show(state)
        return self.view

    def guaranteed_line(self, tree: QuotaTree | None) -> GuaranteedLine | None:
        """The jobs below quotas with guarantees; sorted again when quotas or namespaces change."""
        if tree is None:
            self.guaranteed = None
        elif self.guaranteed is None or self.guaranteed.tree is not tree:
            self.guaranteed = GuaranteedLine(tree, self.line)
        return self.guaranteed


def _shape(entry: QueueEntry) -> object:
    """Jobs of one shape fit or do not fit together."""
    return tuple((one.ask.signature, one.number, one.least) for one in entry.demands)


def _with_nothing(entry: QueueEntry) -> QueueEntry:
    """A job that wants nothing any more."""
    return entry._replace(demands=(), waiting=entry.waiting._replace(asked=NOTHING))


class QueueGate:
    """The queued jobs of all pools, while this server leads."""

    def __init__(self, region: str = "") -> None:
        """`region`: the region whose quota guarantees apply."""
        self._ledger = GuaranteeLedger(region)
        self._pools: dict[str, _PoolGate] = defaultdict(_PoolGate)
        self._entries: dict[JobKey, QueueEntry] = {}
        self._ready: dict[JobKey, dict[str, Evaluation]] = {}
        self._in_flight: dict[str, QueueEntry] = {}
        self._placed: set[JobKey] = set()
        """Jobs in flight of which allocations have changed: the entries ask for what is not placed yet."""
        self.promises: dict[str, tuple[Promise, ...]] = {}
        """The jobs for which capacity was reserved at the last decision, by pool."""
        self.is_dirty = False
        """Whether anything has changed since the last decision."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: JobKey) -> bool:
        return key in self._entries

    def pools(self) -> list[str]:
        """The pools for which jobs wait."""
        return sorted(name for name, pool in self._pools.items() if len(pool.line))

    @property
    def in_flight(self) -> int:
        """Evaluations that the broker has."""
        return len(self._in_flight)

    def takes(self, state: Snapshot, evaluation: Evaluation) -> bool:
        """Keep an evaluation that is ready, if its job waits in a queue; False: it is for the broker.

        A job that wants nothing new (it shrinks, or all of it runs) has nothing to wait for.
        """
        entry = entry_of(state, evaluation)
        if entry is None or not entry.demands or evaluation.id in self._in_flight:
            return False
        self._put(entry)
        self._ready.setdefault(entry.waiting.key, {})[evaluation.id] = evaluation
        self._pools[entry.job.node_pool].ready.add(entry.waiting.key)
        self.is_dirty = True
        return True

    def is_queued(self, state: Snapshot, evaluation: Evaluation) -> bool:
        """Whether an evaluation is of those that wait in a queue."""
        return queued_job(state, evaluation) is not None

    def note_blocked(self, state: Snapshot, evaluation: Evaluation) -> None:
        """An evaluation of a queued job was unplaced: its job keeps its place and is not ready."""
        entry = entry_of(state, evaluation)
        if entry is not None:
            self._put(entry)
            self.is_dirty = True

    def forget(self, evaluation: Evaluation) -> None:
        """Remove an ended evaluation."""
        self.is_dirty = True
        self._in_flight.pop(evaluation.id, None)
        key = (evaluation.namespace, evaluation.job_id)
        ready = self._ready.get(key)
        if ready is not None:
            ready.pop(evaluation.id, None)
            if not ready:
                self._unready(key)
        entry = self._entries.get(key)
        if entry is None or entry.evaluation.id != evaluation.id:
            return
        others = self._ready.get(key)
        if others is None:
            self._drop(key)
        else:
            # With the place of an evaluation that ended, the job would stay in the queue for ever.
            self._entries[key] = entry._replace(evaluation=next(iter(others.values())))

    def done(self, eval_id: str) -> None:
        """The broker has completed or dropped an evaluation."""
        if self._in_flight.pop(eval_id, None) is not None:
            self.is_dirty = True

    def reset(self, state: Snapshot, keys: Iterable[JobKey] | None = None) -> list[Evaluation]:
        """Look again at jobs that changed, or at all; returns evaluations that wait in no queue any more."""
        freed: list[Evaluation] = []
        if keys is None:
            for name, pool in self._pools.items():
                pool.view = pool.view if queue_of(state, name) is not None else None
        for key in list(self._entries if keys is None else keys):
            entry = self._entries.get(key)
            if entry is None:
                continue
            self.is_dirty = True
            now = entry_of(state, entry.evaluation)
            if now is not None and now.demands:
                self._put(now)
                continue
            freed.extend(self._unready(key).values())
            self._drop(key)
        return freed

    def follow(self, changes: Changes) -> None:
        """Follow a command's changes of the tables, other than jobs, on which decisions depend."""
        self._ledger.follow(changes)
        if self._in_flight:
            flying = {entry.waiting.key for entry in self._in_flight.values()}
            allocs = (
                change.before if change.after is None else change.after
                for change in changes
                if change.table == "allocs"
            )
            self._placed.update(key for row in allocs if (key := (row.namespace, row.job_id)) in flying)
        for pool in self._pools.values():
            if pool.view is not None and not pool.view.follow(changes):
                pool.view = None

    def look(self, state: Snapshot, now: int) -> list[Evaluation]:
        """The evaluations that the broker gets now; every change of the state was followed."""
        self.is_dirty = False
        self._count_placed(state)
        waiting: list[Evaluation] = []
        for name in sorted(self._pools):
            decision = self._decide(state, name, now)
            self.promises[name] = decision.promises
            for key in decision.release:
                evaluations = self._unready(key)
                waiting.extend(evaluations.values())
                self._in_flight.update(dict.fromkeys(evaluations, self._entries[key]))
        return waiting

    def _count_placed(self, state: Snapshot) -> None:
        """Leave to the jobs in flight what they still wait for: the state has what was placed, counted once."""
        for eval_id, entry in self._in_flight.items():
            if entry.waiting.key in self._placed:
                now = entry_of(state, entry.evaluation)
                self._in_flight[eval_id] = now if now is not None else _with_nothing(entry)
        self._placed.clear()

    def _decide(self, state: Snapshot, name: str, now: int) -> QueueDecision:
        pool = self._pools[name]
        view = pool.view_of(state, name)
        if view is None:
            return QueueDecision((), ())
        self._ledger.show(state)
        guaranteed = pool.guaranteed_line(self._ledger.tree)
        flying = {entry.waiting.key: entry for entry in self._in_flight.values() if entry.job.node_pool == name}
        # A job in flight has its place in the room already and is passed over by the order.
        resting: list[Waiting | None] = [pool.line.remove(key) for key in flying]
        shapes = pool.shapes if len(pool.shapes) <= SHAPES_MAX else None
        try:
            jobs = QueuedJobs(self._entries, pool.ready, list(flying.values()), shapes)
            within = GuaranteedJobs(view, self._ledger, guaranteed, now=now)
            return decide(view, pool.line, jobs, within, now=now)
        finally:
            for waiting in resting:
                if waiting is not None:
                    pool.line.put(waiting)

    def _unready(self, key: JobKey) -> dict[str, Evaluation]:
        """Remove and return a job's evaluations that waited here."""
        entry = self._entries.get(key)
        if entry is not None and entry.job.node_pool in self._pools:
            self._pools[entry.job.node_pool].ready.discard(key)
        return self._ready.pop(key, {})

    def _put(self, entry: QueueEntry) -> None:
        key = entry.waiting.key
        self._drop(key)
        self._entries[key] = entry
        pool = self._pools[entry.job.node_pool]
        pool.put(entry)
        if key in self._ready:
            pool.ready.add(key)

    def _drop(self, key: JobKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            pool = self._pools[entry.job.node_pool]
            pool.remove(entry)
            if not len(pool.line):
                # Its view stays: the next job comes soon, and summing up a large pool takes longer than following it.
                self.promises.pop(entry.job.node_pool, None)
