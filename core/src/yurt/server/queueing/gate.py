"""The gate before the evaluation broker: in pools with a queue, the order decides which evaluation is scheduled next.

Without it, each allocation that ends would wake every evaluation that could use the room, and the scheduler would try
them by priority, then by chance. An evaluation of a queued job stands here until the order lets it through, at most
`WINDOW` of a pool at a time; what comes back without a place waits here again. The gate holds nothing that is not in
the state: a new leader builds it from the evaluations that have not ended.

Places of a job: *ready* (an evaluation waits here), *in flight* (the broker has it), *tried* (blocked: it was scheduled
and found no room; it is ready again once capacity that it could use appears).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from yurt.queue.line import Line
from yurt.queue.waiting import JobKey
from yurt.server.queueing.entries import Entry, entry_of
from yurt.server.queueing.order import Decision, Promise, QueuedJobs, decide
from yurt.state import Snapshot
from yurt.structs.evaluation import Evaluation


class QueueGate:
    """The queued jobs of all pools, while this server leads."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = defaultdict(Line)
        self._entries: dict[JobKey, Entry] = {}
        self._ready: dict[JobKey, dict[str, Evaluation]] = {}
        self._in_flight: dict[str, Entry] = {}
        self.promises: dict[str, tuple[Promise, ...]] = {}
        """By pool, for whom capacity was kept at the last look."""
        self.is_dirty = False
        """Whether something happened since the last look."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: JobKey) -> bool:
        return key in self._entries

    @property
    def in_flight(self) -> int:
        """Evaluations that the broker has."""
        return len(self._in_flight)

    def takes(self, state: Snapshot, evaluation: Evaluation) -> bool:
        """Keep an evaluation that is ready, if its job waits in a queue; False: it is for the broker.

        A job that wants nothing new (it shrinks, or all of it runs) has nothing to wait for.
        """
        entry = entry_of(state, evaluation)
        if entry is None or not entry.wanted or evaluation.id in self._in_flight:
            return False
        self._put(entry)
        self._ready.setdefault(entry.waiting.key, {})[evaluation.id] = evaluation
        self.is_dirty = True
        return True

    def note_blocked(self, state: Snapshot, evaluation: Evaluation) -> None:
        """An evaluation of a queued job found no room: its job keeps its place and is not ready."""
        entry = entry_of(state, evaluation)
        if entry is not None:
            self._put(entry)
            self.is_dirty = True

    def forget(self, evaluation: Evaluation) -> None:
        """An evaluation ended."""
        self.is_dirty = True
        self._in_flight.pop(evaluation.id, None)
        key = (evaluation.namespace, evaluation.job_id)
        ready = self._ready.get(key)
        if ready is not None:
            ready.pop(evaluation.id, None)
            if not ready:
                del self._ready[key]
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
        """The broker has an evaluation no more."""
        if self._in_flight.pop(eval_id, None) is not None:
            self.is_dirty = True

    def reset(self, state: Snapshot, keys: Iterable[JobKey] | None = None) -> list[Evaluation]:
        """Look again at jobs that changed, or at all; returns evaluations that wait in no queue any more."""
        freed: list[Evaluation] = []
        for key in list(self._entries if keys is None else keys):
            entry = self._entries.get(key)
            if entry is None:
                continue
            self.is_dirty = True
            now = entry_of(state, entry.evaluation)
            if now is not None and now.wanted:
                self._put(now)
                continue
            self._drop(key)
            freed.extend(self._ready.pop(key, {}).values())
        return freed

    def look(self, state: Snapshot, now: int) -> list[Evaluation]:
        """The evaluations that the broker gets now."""
        self.is_dirty = False
        found: list[Evaluation] = []
        for pool in sorted(self._lines):
            decision = self._decide(state, pool, now)
            self.promises[pool] = decision.promises
            for key in decision.release:
                evaluations = self._ready.pop(key)
                found.extend(evaluations.values())
                self._in_flight.update(dict.fromkeys(evaluations, self._entries[key]))
        return found

    def _decide(self, state: Snapshot, pool: str, now: int) -> Decision:
        line = self._lines[pool]
        ready = {key for key in self._ready if key in line}
        flying = {entry.waiting.key: entry for entry in self._in_flight.values() if entry.job.node_pool == pool}
        # A job in flight has its place in the room already and is passed over by the order.
        resting = [(key, line.remove(key)) for key in flying]
        try:
            return decide(state, pool, line, QueuedJobs(self._entries, ready, list(flying.values())), now=now)
        finally:
            for _, waiting in resting:
                if waiting is not None:
                    line.put(waiting)

    def _put(self, entry: Entry) -> None:
        key = entry.waiting.key
        known = self._entries.get(key)
        if known is not None and known.job.node_pool != entry.job.node_pool:
            self._drop(key)
        self._entries[key] = entry
        self._lines[entry.job.node_pool].put(entry.waiting)

    def _drop(self, key: JobKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            line = self._lines[entry.job.node_pool]
            line.remove(key)
            if not len(line):
                del self._lines[entry.job.node_pool]
                self.promises.pop(entry.job.node_pool, None)
