"""A cluster without clients, in which only the scheduler acts: on a copy of the state, at a time that its caller sets.

Evaluations take the ways they take on a leader: queued jobs wait at the gate of their node pool, what found no capacity
is blocked until a change of the state could help it, all others go to the scheduler by their priority. Each plan is
applied to the state before the next evaluation, so no plan conflicts with another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from yurt.broker.blocked import BlockedEvals
from yurt.fsm import apply
from yurt.queue.waiting_job import JobKey
from yurt.scheduler.attempts import Attempt, attempt
from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano, replace
from yurt.server.queueing.gate import QueueGate
from yurt.server.scheduling.unblock_events import UnblockEvents
from yurt.state import Changes, Snapshot, Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, ApplyPlan, Rejected, UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import eval_type
from yurt.structs.rules import RULES_VERSION
from yurt.structs.status import Trigger

ROUNDS_MAX: Final = 100_000
"""Evaluations at one time after which a simulation is aborted: each job is evaluated a few times at most."""
SEED: Final = 1
CHECKED_MAX: Final = 1_000_000
"""Pairs of a blocked evaluation and an event that are checked in one look: all of them."""
PER_NODE_JOBS: Final = (status.JOB_SYSTEM, status.JOB_SYSBATCH)

Follow = Callable[[Changes], None]


class ClusterSimulation:
    """A state on which the scheduler acts; `now` is the time of its decisions, in unix nanoseconds."""

    def __init__(self, state: Snapshot, *, now: UnixNano, region: str, follow: Follow | None = None) -> None:
        """`follow` gets the changes of each command."""
        self.state, self.now = state, now
        self.reasons: dict[JobKey, str] = {}
        """Why the last attempt at a job did not place all of it; empty when it did."""
        self.preempted: list[Allocation] = []
        """The allocations that plans preempted, in order; the caller may clear the list."""
        self.attempts = 0
        self._follow = follow
        self._limits = QuotaLimits(region)
        self._gate = QueueGate(region)
        self._blocked = BlockedEvals()
        self._events = UnblockEvents(self._blocked, lambda: self.state, self._limits)
        self._direct: list[tuple[bool, int, int, str, Evaluation]] = []
        self._delayed: list[tuple[int, str, Evaluation]] = []
        """The evaluations of a later time, the next one first."""
        self._number = 0

    def apply(self, command: AnyCommand) -> None:
        """Apply a command, and note what it unblocks; raises Invalid when the state rejects it."""
        step = apply(self.state, replace(command, rules_version=RULES_VERSION), index=self.state.index + 1)
        if isinstance(step.result, Rejected):
            raise Invalid(f"the scheduler's plan does not fit the state: {step.result.message}")
        self.state = step.state
        self._gate.follow(step.changes)
        for evaluation in self._events.note(step.changes, index=self.state.index):
            self._route(evaluation)
        if self._follow is not None:
            self._follow(step.changes)

    def evaluate(self, key: JobKey, trigger: Trigger) -> None:
        """Evaluate a job at the next `settle`; jobs that are stopped, or only launch others, are not."""
        made = self._evaluation(key, trigger)
        if made is not None:
            self.apply(UpsertEvaluations(evaluations=(made,)))
            self._route(made)

    @property
    def next_wake(self) -> int:
        """The time of the next delayed evaluation, at which the caller should settle; 0 for none."""
        while self._delayed and not self._is_pending(self._delayed[0][-1]):
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else 0

    def drop_waiting(self) -> list[JobKey]:
        """Delete the evaluations that wait, whose snapshots are of the state as it was; returns their jobs."""
        edit = self.state.edit(self.state.index + 1)
        keys: list[JobKey] = []
        for name in (status.EVAL_BLOCKED, status.EVAL_PENDING):
            for old in self.state.evals.where("status", name):
                edit.delete(Tables.evals, old.id)
                keys.append((old.namespace, old.job_id))
        self.state = edit.commit()
        return keys

    def settle(self) -> None:
        """Schedule until nothing more is placed at this time."""
        while 0 < self.next_wake <= self.now:
            self._route(heapq.heappop(self._delayed)[-1])
        for _ in range(ROUNDS_MAX):
            self._unblock()
            if self._direct:
                self._attempt(heapq.heappop(self._direct)[-1])
                continue
            released = self._gate.look(self.state, self.now)
            for evaluation in released:
                self._to_scheduler(evaluation)
            if not released:
                return
        raise Invalid(f"the cluster did not settle within {ROUNDS_MAX} evaluations")

    def _unblock(self) -> None:
        while self._blocked.has_changes:
            for evaluation in self._blocked.take_unblocked(CHECKED_MAX):
                self._route(evaluation)
        superseded = self._blocked.take_superseded(CHECKED_MAX)
        if superseded:
            ended = tuple(
                replace(
                    one.evaluation,
                    status=status.EVAL_CANCELED,
                    status_description=one.reason,
                    modify_time=self.now,
                )
                for one in superseded
            )
            self.apply(UpsertEvaluations(evaluations=ended))

    def _route(self, evaluation: Evaluation) -> None:
        if not self._gate.takes(self.state, evaluation):
            self._to_scheduler(evaluation)

    def _to_scheduler(self, evaluation: Evaluation) -> None:
        order = (evaluation.type not in PER_NODE_JOBS, -evaluation.priority, evaluation.job_modify_index, evaluation.id)
        heapq.heappush(self._direct, (*order, evaluation))

    def _attempt(self, evaluation: Evaluation) -> None:
        """Attempt an evaluation, apply its plan, and evaluate the jobs that it preempted."""
        self.attempts += 1
        made = attempt(self.state, evaluation, now=self.now, seed=SEED, limits=self._limits)
        if not made.plan.is_empty:
            self.apply(ApplyPlan(plan=made.plan))
        self._end(evaluation, made)
        victims: list[JobKey] = []
        for stop in made.plan.preemptions:
            alloc = self.state.allocs.get(stop.id)
            if alloc is not None:
                self.preempted.append(alloc)
                victims.append((alloc.namespace, alloc.job_id))
        for key in dict.fromkeys(victims):
            self.evaluate(key, status.TRIGGER_PREEMPTION)

    def _end(self, evaluation: Evaluation, made: Attempt) -> None:
        """Record the end of an evaluation, and route those that it leaves."""
        ended = made.outcome.evaluation
        self.reasons[(evaluation.namespace, evaluation.job_id)] = _reason(ended)
        self.apply(UpsertEvaluations(evaluations=(ended, *made.outcome.created)))
        if ended.status != status.EVAL_BLOCKED:
            self._gate.forget(ended)
        self._gate.done(ended.id)
        for other in (ended, *made.outcome.created):
            if other.status == status.EVAL_BLOCKED:
                self._block(other)
            elif other.status == status.EVAL_PENDING and other.wait_until > self.now:
                heapq.heappush(self._delayed, (other.wait_until, other.id, other))
            elif other.status == status.EVAL_PENDING:
                self._route(other)

    def _is_pending(self, evaluation: Evaluation) -> bool:
        """Whether a delayed evaluation is still to be processed, and its job has not gone."""
        stored = self.state.evals.get(evaluation.id)
        job = self.state.jobs.get((evaluation.namespace, evaluation.job_id))
        return stored is not None and stored.status == status.EVAL_PENDING and job is not None

    def _block(self, evaluation: Evaluation) -> None:
        self._gate.note_blocked(self.state, evaluation)
        if self._blocked.block(evaluation):
            self._route(evaluation)

    def _evaluation(self, key: JobKey, trigger: Trigger) -> Evaluation | None:
        job = self.state.jobs.get(key)
        if job is None or job.stop or job.is_template:
            return None
        self._number += 1
        return Evaluation(
            id=f"eeeeeeee-0000-4000-8000-{self._number:012x}",
            namespace=job.namespace,
            priority=job.priority,
            type=eval_type(job),
            triggered_by=trigger,
            job_id=job.id,
            job_modify_index=job.job_modify_index,
            status=status.EVAL_PENDING,
            create_time=self.now,
            modify_time=self.now,
        )


def _reason(ended: Evaluation) -> str:
    """Why an evaluation did not place all: the quota, or what the nodes lack."""
    if ended.quota_limit_reached:
        return f'quota "{ended.quota_limit_reached}" is used up'
    for group, metric in sorted(ended.failed_tg_allocs.items()):
        lacks = [f"{name} exhausted on {_nodes(each)}" for name, each in sorted(metric.dimension_exhausted.items())]
        lacks += [f"{name} excludes {_nodes(each)}" for name, each in sorted(metric.constraint_filtered.items())]
        where = "; ".join(lacks) or f"none of {_nodes(metric.nodes_evaluated)} suits it"
        return f'group "{group}": {where}'
    return ended.status_description


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"
