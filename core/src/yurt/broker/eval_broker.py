"""The evaluation broker: the queue of evaluations for schedulers.

An evaluation is in exactly one place (invariant B2): *delayed* (its time has not come, or it was nacked a moment
ago), *ready*, *pending* (another evaluation of its job is ahead), *outstanding* (one worker has it), *failed*
(delivered too often), or *cancelable* (made superfluous by a newer one of its job). Per (namespace, job) at most one
is ready, outstanding, failed or nacked: it holds the job's claim, so that two workers never look at one job at once
(B3). The claim ends with the ack; then the best of the pending ones becomes ready and the others are cancelable.

Time enters only as `now` (unix ns): the caller calls `advance` when `next_deadline` has come. The caller also brings
the tokens.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, Literal, NamedTuple

import msgspec

from yurt.sdk.value import UnixNano, seconds
from yurt.structs.evaluation import Evaluation

FAILED_QUEUE: Final = "_failed"
DELIVERY_LIMIT: Final = 3
NACK_TIMEOUT: Final = seconds(60)
FIRST_NACK_DELAY: Final = seconds(1)
NEXT_NACK_DELAY: Final = seconds(20)

JobKey = tuple[str, str]
Place = Literal["ready", "failed", "delayed", "pending", "outstanding", "cancelable", ""]
"""The state of an evaluation in the broker; "" when the broker does not have it."""


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """An evaluation delivered to a worker; `token` proves that the worker still owns it.

    It travels as an array, also between servers of different versions.
    """

    evaluation: Evaluation
    token: str
    stored_index: int = 0
    """The leader's index when it delivered to another server: a state of this index has the plans of the job's earlier
    evaluations. 0 for the leader's own workers, and from a leader of an earlier version."""

    @property
    def needed_index(self) -> int:
        """The index of the oldest state on which the evaluation may be attempted."""
        return max(self.evaluation.modify_index, self.stored_index)


class _Outstanding(msgspec.Struct):
    evaluation: Evaluation
    token: str
    queue: str
    nack_at: int
    is_paused: bool = False
    requeued: Evaluation | None = None


class _Job(msgspec.Struct):
    claim: str = ""
    pending: dict[str, Evaluation] = msgspec.field(default_factory=dict)


class BrokerStats(NamedTuple):
    """The number of evaluations in each state."""

    ready: int
    delayed: int
    pending: int
    outstanding: int
    failed: int
    cancelable: int


class QueueCount(msgspec.Struct, frozen=True):
    """The number of evaluations of one queue that a worker may take, and the number that workers have."""

    ready: int = 0
    outstanding: int = 0


class EvalBroker:
    """Evaluations by priority, one at a time per job."""

    def __init__(self) -> None:
        self._ready: dict[str, list[tuple[int, int, str]]] = {}
        self._waiting: dict[str, tuple[str, Evaluation]] = {}
        self._delayed: list[tuple[int, str]] = []
        self._delayed_evals: dict[str, tuple[int, str, Evaluation]] = {}
        self._outstanding: dict[str, _Outstanding] = {}
        self._jobs: dict[JobKey, _Job] = {}
        self._deliveries: dict[str, int] = {}
        self._cancelable: dict[str, Evaluation] = {}
        self._pending_ids: dict[str, JobKey] = {}

    def enqueue(self, evaluation: Evaluation, *, now: UnixNano) -> None:
        """Enqueue an evaluation, unless the broker has it already."""
        if self.place(evaluation.id):
            return
        start = evaluation.wait_until
        if evaluation.wait:
            start = max(start, (evaluation.create_time or now) + evaluation.wait)
        if start > now:
            self._delay(evaluation, evaluation.type, start)
        else:
            self._admit(evaluation, evaluation.type)

    def requeue(self, evaluation: Evaluation, *, now: UnixNano) -> None:
        """As `enqueue`; an outstanding evaluation is processed again after its ack."""
        entry = self._outstanding.get(evaluation.id)
        if entry is not None:
            # Queued only after the ack: until then the worker's job is claimed (B3).
            entry.requeued = evaluation
        else:
            self.enqueue(evaluation, now=now)

    def dequeue(self, queues: Iterable[str], *, now: UnixNano, token: str) -> Delivery | None:
        """The ready evaluation of highest priority in the queues, or None."""
        best: tuple[tuple[int, int, str], str] | None = None
        for name in queues:
            head = self._head(name)
            if head is not None and (best is None or head < best[0]):
                best = (head, name)
        if best is None:
            return None
        (_, _, eval_id), name = best
        popped = heapq.heappop(self._ready[name])
        # Heaps keep entries of evaluations that left (`forget`); `_head` has thrown away those before this one.
        assert popped == best[0], (popped, best, "the head that was compared leaves the heap")
        assert not self._ready[name] or popped <= self._ready[name][0], "the most urgent one leaves first"
        evaluation = self._waiting.pop(eval_id)[1]
        assert evaluation.id == eval_id, (evaluation.id, eval_id)
        assert self._jobs[(evaluation.namespace, evaluation.job_id)].claim == eval_id, "two workers at one job (B3)"
        assert eval_id not in self._outstanding, eval_id
        self._deliveries[eval_id] = self._deliveries.get(eval_id, 0) + 1
        assert name == FAILED_QUEUE or self._deliveries[eval_id] <= DELIVERY_LIMIT, (name, self._deliveries[eval_id])
        self._outstanding[eval_id] = _Outstanding(evaluation, token, name, now + NACK_TIMEOUT)
        return Delivery(evaluation, token)

    def ack(self, eval_id: str, token: str, *, now: UnixNano) -> bool:
        """Complete an evaluation; False for an expired token."""
        entry = _entry_with_token(self._outstanding, eval_id, token)
        if entry is None:
            return False
        del self._outstanding[eval_id]
        self._deliveries.pop(eval_id, None)
        self._release(entry.evaluation)
        assert not self.place(eval_id), "an acknowledged evaluation leaves its place before it is queued again"
        if entry.requeued is not None:
            self.enqueue(entry.requeued, now=now)
        return True

    def nack(self, eval_id: str, token: str, *, now: UnixNano) -> bool:
        """Report a failure: the evaluation is delivered again later, three times at most; False for an expired
        token."""
        entry = _entry_with_token(self._outstanding, eval_id, token)
        if entry is None:
            return False
        self._put_back(entry, now)
        return True

    def pause_nack(self, eval_id: str, token: str) -> bool:
        """Stop the nack timer while the worker waits; False for an expired token."""
        entry = _entry_with_token(self._outstanding, eval_id, token)
        if entry is not None:
            entry.is_paused = True
        return entry is not None

    def resume_nack(self, eval_id: str, token: str, *, now: UnixNano) -> bool:
        """Restart the nack timer; False for an expired token."""
        entry = _entry_with_token(self._outstanding, eval_id, token)
        if entry is not None:
            entry.is_paused = False
            entry.nack_at = now + NACK_TIMEOUT
        return entry is not None

    def forget(self, eval_id: str) -> None:
        """Drop an evaluation that ended or was deleted elsewhere; an outstanding one stays until its ack."""
        self._cancelable.pop(eval_id, None)
        key = self._pending_ids.pop(eval_id, None)
        if key is not None:
            assert self._jobs[key].claim not in ("", eval_id), "a pending evaluation waits behind the claim of another"
            del self._jobs[key].pending[eval_id]
        delayed = self._delayed_evals.pop(eval_id, None)
        waiting = self._waiting.pop(eval_id, None)
        found = delayed[2] if delayed else waiting[1] if waiting else None
        if found is not None:
            self._deliveries.pop(eval_id, None)
            self._release(found)
        # An outstanding evaluation stays until its ack: its worker may still write, and no other may process the job.
        assert self.place(eval_id) in ("", "outstanding"), (eval_id, self.place(eval_id))

    def advance(self, now: UnixNano) -> None:
        """Fire all timers that are due."""
        while self._delayed and self._delayed[0][0] <= now:
            due, eval_id = heapq.heappop(self._delayed)
            entry = self._delayed_evals.get(eval_id)
            # An entry whose time is not the evaluation's own is left over from an earlier delay.
            if entry is not None and entry[0] == due:
                del self._delayed_evals[eval_id]
                self._admit(entry[2], entry[1])
        for overdue in [o for o in self._outstanding.values() if not o.is_paused and o.nack_at <= now]:
            self._put_back(overdue, now)
        assert not self._delayed or self._delayed[0][0] > now, "no timer that is due is left"

    def next_deadline(self) -> UnixNano | None:
        """The time of the next `advance`."""
        while self._delayed and self._delayed_evals.get(self._delayed[0][1], (0,))[0] != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        times = [entry.nack_at for entry in self._outstanding.values() if not entry.is_paused]
        if self._delayed:
            times.append(self._delayed[0][0])
        return UnixNano(min(times)) if times else None

    @property
    def has_cancelable(self) -> bool:
        """Whether there are evaluations to cancel."""
        return bool(self._cancelable)

    def take_cancelable(self, limit: int) -> tuple[Evaluation, ...]:
        """Remove and return up to `limit` evaluations to cancel."""
        ids = list(self._cancelable)[:limit]
        return tuple(self._cancelable.pop(eval_id) for eval_id in ids)

    def token_of(self, eval_id: str) -> str:
        """The token of an outstanding evaluation, or ''."""
        entry = self._outstanding.get(eval_id)
        return entry.token if entry is not None else ""

    def has_ready(self, queues: Iterable[str]) -> bool:
        """Whether an evaluation of the queues can be dequeued now."""
        return any(self._head(name) is not None for name in queues)

    @property
    def ready(self) -> int:
        """The number of evaluations that can be dequeued now, including repeatedly failed ones."""
        return len(self._waiting)

    def place(self, eval_id: str) -> Place:
        """The state of an evaluation in the broker."""
        if eval_id in self._waiting:
            return "failed" if self._waiting[eval_id][0] == FAILED_QUEUE else "ready"
        if eval_id in self._delayed_evals:
            return "delayed"
        if eval_id in self._outstanding:
            return "outstanding"
        if eval_id in self._cancelable:
            return "cancelable"
        return "pending" if eval_id in self._pending_ids else ""

    def stats(self) -> BrokerStats:
        """The number of evaluations in each state."""
        failed = sum(1 for name, _ in self._waiting.values() if name == FAILED_QUEUE)
        return BrokerStats(
            ready=len(self._waiting) - failed,
            delayed=len(self._delayed_evals),
            pending=len(self._pending_ids),
            outstanding=len(self._outstanding),
            failed=failed,
            cancelable=len(self._cancelable),
        )

    def by_queue(self) -> dict[str, QueueCount]:
        """The number of ready and outstanding evaluations of each queue that has some."""
        ready = Counter(name for name, _ in self._waiting.values())
        outstanding = Counter(entry.queue for entry in self._outstanding.values())
        return {name: QueueCount(ready[name], outstanding[name]) for name in {*ready, *outstanding}}

    def _head(self, name: str) -> tuple[int, int, str] | None:
        heap = self._ready.get(name)
        while heap:
            entry = self._waiting.get(heap[0][2])
            if entry is not None and entry[0] == name:
                return heap[0]
            heapq.heappop(heap)
        return None

    def check(self) -> None:
        """Assert the invariants over all data, for tests after every step."""
        places = (self._waiting, self._delayed_evals, self._outstanding, self._cancelable, self._pending_ids)
        everywhere = list(chain.from_iterable(places))
        assert len(everywhere) == len(set(everywhere)), "an evaluation is in two places (B2)"
        by_job = {eval_id: key for key, job in self._jobs.items() for eval_id in job.pending}
        assert by_job == self._pending_ids, "the pending evaluations of the jobs are those that are pending"
        for key, job in self._jobs.items():
            assert self.place(job.claim) in ("ready", "failed", "delayed", "outstanding"), (key, job.claim)
        for eval_id, (queue, evaluation) in self._waiting.items():
            assert self._jobs[(evaluation.namespace, evaluation.job_id)].claim == eval_id, "ready without a claim (B3)"
            assert any(entry[2] == eval_id for entry in self._ready[queue]), "ready, but no worker will find it"
        assert sum(self.stats()) == len(everywhere), self.stats()

    def _delay(self, evaluation: Evaluation, queue: str, until: int) -> None:
        assert not self.place(evaluation.id), "one place at a time (B2)"
        self._delayed_evals[evaluation.id] = (until, queue, evaluation)
        heapq.heappush(self._delayed, (until, evaluation.id))

    def _admit(self, evaluation: Evaluation, queue: str) -> None:
        """Add an evaluation as ready, or as pending while its job has another one."""
        assert not self.place(evaluation.id), "one place at a time (B2)"
        key = (evaluation.namespace, evaluation.job_id)
        job = self._jobs.setdefault(key, _Job())
        if job.claim and job.claim != evaluation.id:
            assert queue != FAILED_QUEUE, "a delivered evaluation has its job's claim"
            job.pending[evaluation.id] = evaluation
            self._pending_ids[evaluation.id] = key
            return
        job.claim = evaluation.id
        self._waiting[evaluation.id] = (queue, evaluation)
        # Equal priorities leave in the order of their creation; the id makes the order total on every run.
        entry = (-evaluation.priority, evaluation.create_index, evaluation.id)
        heapq.heappush(self._ready.setdefault(queue, []), entry)

    def _release(self, evaluation: Evaluation) -> None:
        """Free the job if this evaluation held it: its best pending evaluation becomes ready, the others become
        cancelable."""
        key = (evaluation.namespace, evaluation.job_id)
        job = self._jobs.get(key)
        if job is None or job.claim != evaluation.id:
            return
        job.claim = ""
        if not job.pending:
            del self._jobs[key]
            return
        assert evaluation.id not in job.pending, "what had the claim did not wait for it"
        # The newest of the highest priority: its snapshot includes the events of the earlier ones, which are
        # superfluous.
        following = max(job.pending.values(), key=lambda e: (e.priority, e.modify_index, e.create_index, e.id))
        for eval_id in job.pending:
            del self._pending_ids[eval_id]
        del job.pending[following.id]
        self._cancelable.update(job.pending)
        job.pending = {}
        self._admit(following, following.type)
        assert job.claim == following.id, "the claim passes on at once: no job waits without one (B3)"

    def _put_back(self, entry: _Outstanding, now: UnixNano) -> None:
        evaluation = entry.evaluation
        del self._outstanding[evaluation.id]
        count = self._deliveries.get(evaluation.id, 0)
        assert count > 0, "only a delivered evaluation can be returned"
        if count >= DELIVERY_LIMIT:
            self._admit(evaluation, FAILED_QUEUE)
        else:
            # The job stays claimed during the delay: another worker would fail for the same reason now.
            delay = FIRST_NACK_DELAY if count <= 1 else (count - 1) * NEXT_NACK_DELAY
            assert delay > 0, "an evaluation that comes back at once would keep a worker busy for nothing"
            self._delay(evaluation, entry.queue, now + delay)


def _entry_with_token(outstanding: Mapping[str, _Outstanding], eval_id: str, token: str) -> _Outstanding | None:
    entry = outstanding.get(eval_id)
    return entry if entry is not None and entry.token == token else None
