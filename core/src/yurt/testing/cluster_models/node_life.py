"""The server side of nodes without loops: every command waits in a log until the test applies it.

State machine, scheduler, plan check, broker and duties are the real ones. What stands between them is here in its
shortest form: proposals are computed from the applied state and stored in their order, so a test decides what was on
its way when something else happened. `observe` of `Rules` is called with every change and fails on a broken rule.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from yurt import scheduler
from yurt.broker import FAILED_QUEUE, Delivery
from yurt.duties.drain import drain, drain_strategy
from yurt.duties.nodes import (
    granted_status,
    missed_heartbeat_status,
    refused_report,
    registered,
    set_status,
)
from yurt.fsm import apply
from yurt.fsm.eval_triggers import Mint, evaluation_of
from yurt.runtime.env import Timer
from yurt.runtime.turns import Turns
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import follow_ups, outcome_evaluations, preemption_evals
from yurt.server.scheduling.work_sources import one_by_one
from yurt.state import Changes, Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.job import Job
from yurt.structs.node import DrainMetadata, DrainSpec, Node
from yurt.structs.plan import Outcome
from yurt.structs.predicates import is_ready
from yurt.structs.status import NodeStatus
from yurt.testing import factories

TTL_S, GRACE_S = 20.0, 10.0
ROUNDS_MAX = 400

OnApplied = Callable[[c.Result], None]
Observer = Callable[[Snapshot, c.AnyCommand, Changes, Snapshot], None]


class NotKnown(Exception):
    """The node is not registered."""


class ReportRefused(Exception):
    """The servers refuse a report."""


class Attempted(NamedTuple):
    """An evaluation at a worker, with the plan of its latest attempt and the number of attempts."""

    delivery: Delivery
    made: scheduler.Attempt
    tries: int


P = ParamSpec("P")
T = TypeVar("T")


class ManualClock:
    """Time and ids that only the test advances."""

    def __init__(self, seed: int) -> None:
        self.passed_s = 0.0
        self._random = random.Random(seed)

    def now(self) -> UnixNano:
        """Wall-clock nanoseconds."""
        return UnixNano(factories.NOW + round(self.passed_s * NANOSECONDS))

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.passed_s

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def uuid(self) -> str:
        """An id."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    async def sleep(self, seconds: float) -> None:
        """Not supported: nothing waits by itself."""
        raise AssertionError(f"a loop sleeps {seconds} s in a world without loops")

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A limit in real time, for work that finishes at once or never."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Not supported: nothing waits by itself."""
        raise AssertionError(f"a timer of {seconds} s in a world without loops")

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function: there are no threads here."""
        return function(*args, **kwargs)


class World:
    """One leading server with its log, queues and duties."""

    def __init__(self, seed: int, observe: Observer) -> None:
        self.clock = ManualClock(seed)
        self.state = Snapshot.empty()
        self.history: list[c.AnyCommand] = []
        self.attempts: list[Attempted] = []
        self.deadlines: dict[str, float] = {}
        self.queue = EvalQueue(env=self.clock, writer=self, current=lambda: self.state, turns=Turns())
        self._log: deque[tuple[c.AnyCommand, OnApplied]] = deque()
        self._observe = observe
        self._unblocked_s = 0.0

    @property
    def mint(self) -> Mint:
        """The time and id source of operations."""
        return Mint(self.clock.now(), self.clock.uuid)

    # -- the log -----------------------------------------------------------------------------------------------------

    def store(self, command: c.AnyCommand, on_applied: OnApplied = lambda _: None) -> None:
        """Append a command to those that wait to be applied."""
        self._log.append((command, on_applied))

    @property
    def evals_on_their_way(self) -> set[str]:
        """Evaluations in commands that are appended but not applied yet."""
        stored = (command for command, _ in self._log if isinstance(command, c.UpsertEvaluations))
        return {evaluation.id for command in stored for evaluation in command.evaluations}

    async def propose(self, command: c.AnyCommand) -> c.Applied:
        """The entry point of the queue's loops, which do not run here."""
        raise AssertionError(command)

    def apply_one(self) -> bool:
        """Apply the oldest waiting command; False when there is none."""
        if not self._log:
            return False
        command, on_applied = self._log.popleft()
        before = self.state
        step = apply(before, command, index=before.index + 1)
        self.state = step.state
        self.history.append(command)
        self.queue.observe(step.changes, index=self.state.index)
        while self.queue.blocked.has_changes:
            self.queue._unblock_some(self.clock.now())
        self._observe(before, command, step.changes, self.state)
        on_applied(step.result)
        return True

    def apply_all(self) -> None:
        """Apply all waiting commands and those that follow from them."""
        for _ in range(ROUNDS_MAX):
            if not self.apply_one():
                return
        raise AssertionError("commands follow from each other without end")

    # -- what clients call -------------------------------------------------------------------------------------------

    def register(self, node: Node) -> None:
        """A client registers its node."""
        stored = registered(node, self.clock.now())
        self.store(c.RegisterNode(node=stored, seed=self.mint.seed(), create_node_pool=True))
        self._heard(node.id)

    def heartbeat(self, node_id: str, asked: NodeStatus, answer: Callable[[str], None] = lambda _: None) -> None:
        """Receive a client's heartbeat; `answer` is called with the resulting status."""
        node = self.state.nodes.get(node_id)
        if node is None:
            raise NotKnown(node_id)
        granted = granted_status(self.state, node, asked)
        self._heard(node_id)

        def tell(result: c.Result | None = None) -> None:
            if isinstance(result, c.Rejected) and result.kind == "stale" and node_id in self.state.nodes:
                self.heartbeat(node_id, asked, answer)
                return
            found = self.state.nodes.get(node_id)
            if found is not None:
                answer(found.status)

        if granted == node.status:
            tell()
        else:
            self.store(set_status(self.state, node, granted, self.mint), tell)

    def report(self, node_id: str, updates: tuple[c.AllocUpdate, ...]) -> None:
        """Receive a client's report; raises ReportRefused while its node may not report."""
        refusal = refused_report(self.state.nodes.get(node_id))
        if refusal:
            raise ReportRefused(refusal)
        if updates:
            self.store(c.UpdateAllocsFromClient(updates=updates, seed=self.mint.seed(), now=self.clock.now()))

    def _heard(self, node_id: str) -> None:
        self.deadlines[node_id] = self.clock.passed_s + TTL_S + GRACE_S

    # -- what users call ---------------------------------------------------------------------------------------------

    def run_job(self, job: Job) -> None:
        """Register a job."""
        self.store(c.RegisterJob(job=job, evaluation=evaluation_of(job, status.TRIGGER_JOB_REGISTER, self.mint)))

    def stop_job(self, job: Job, *, purge: bool) -> None:
        """Stop a job."""
        evaluation = evaluation_of(job, status.TRIGGER_JOB_DEREGISTER, self.mint)
        self.store(c.DeregisterJob(namespace=job.namespace, job_id=job.id, purge=purge, evaluation=evaluation))

    def drain(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin a drain, or end it and make the node eligible."""
        node = self.state.nodes[node_id]
        strategy = None if spec is None else drain_strategy(spec, node.drain_strategy, now=self.clock.now())
        last = DrainMetadata(status="draining" if spec else "canceled")
        self.store(
            c.SetNodeDrain(
                node_id=node_id,
                strategy=strategy,
                mark_eligible=spec is None,
                last_drain=last,
                seed=self.mint.seed(),
            )
        )

    def purge(self, node_id: str) -> None:
        """Delete a node."""
        self.store(c.DeleteNodes(node_ids=(node_id,), seed=self.mint.seed()))

    # -- duties ------------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and fire timers that are due."""
        self.clock.passed_s += seconds
        for node_id in sorted(self.deadlines):
            if self.deadlines[node_id] <= self.clock.passed_s:
                self._missed(node_id)
        self.queue.broker.advance(self.clock.now())
        if self.clock.passed_s >= self._unblocked_s + 60.0:
            self._unblocked_s = self.clock.passed_s
            for evaluation in self.queue.blocked.unblock_failed():
                self.queue.broker.requeue(evaluation, now=self.clock.now())

    def _missed(self, node_id: str) -> None:
        del self.deadlines[node_id]
        self._lose(node_id)

    def _lose(self, node_id: str) -> None:
        node = self.state.nodes.get(node_id)
        if node is None or node.status == status.NODE_DOWN:
            return
        lost = missed_heartbeat_status(self.state, node, self.clock.now())

        def again(result: c.Result) -> None:
            if isinstance(result, c.Rejected) and result.kind == "stale" and node_id not in self.deadlines:
                self._lose(node_id)

        if lost != node.status:
            self.store(set_status(self.state, node, lost, self.mint, event="Node heartbeat missed"), again)
        if lost == status.NODE_DISCONNECTED:
            self._heard(node_id)

    def keep_house(self) -> None:
        """Run the leader's duties: drains, redundant evaluations, evaluations that failed too often."""
        for node in self.state.nodes.values():
            command = drain(self.state, node, self.mint)
            if command is not None:
                self.store(command)
        canceled = self.queue._take_canceled()
        if canceled:
            self.store(c.UpsertEvaluations(evaluations=canceled))
        failed = self.queue.dequeue_now((FAILED_QUEUE,))
        if failed is not None:
            ended = c.UpsertEvaluations(evaluations=self.queue._failed(failed.evaluation))
            self.store(ended, partial(self._ack, failed))

    # -- the worker and the plan applier -----------------------------------------------------------------------------

    def schedule(self) -> bool:
        """Let a worker take an evaluation and compute a plan; False when none is ready."""
        delivery = self.queue.dequeue_now(status.JOB_TYPES)
        if delivery is None:
            return False
        self._attempt(delivery, 0)
        return True

    def _attempt(self, delivery: Delivery, tries: int) -> None:
        seed = uuid.UUID(self.clock.uuid()).int
        made = scheduler.attempt(self.state, delivery.evaluation, now=self.clock.now(), seed=seed, attempt=tries)
        self.attempts.append(Attempted(delivery, made, tries))

    def submit(self, number: int) -> None:
        """Check the plan of an attempt against a state with all earlier plans, and store it."""
        while any(isinstance(command, c.ApplyPlan) for command, _ in self._log):
            self.apply_one()
        attempted = self.attempts.pop(number % len(self.attempts))
        plan, outcome = attempted.made
        if not self._holds(attempted.delivery):
            return
        if plan.is_empty:
            self._end(attempted.delivery, outcome)
            return
        result = check_plan(self.state, plan)
        if result.accepted.is_empty and not result.is_full:
            self._again(attempted, attempted.tries + 1)
            return
        evaluations = outcome_evaluations(outcome) if result.is_full else follow_ups(outcome)
        preempted = preemption_evals(self.state, result.accepted, mint=self.mint)
        nodes_index = self.state.nodes.index

        def landed(answer: c.Result) -> None:
            if isinstance(answer, c.Rejected):
                self.queue.nack(attempted.delivery)
                return
            if self.state.nodes.index > nodes_index:
                self._look_at_lost_nodes(plan.job_id, {p.node_id for p in result.accepted.placements})
            if result.is_full:
                self.queue.ack(attempted.delivery)
            else:
                self._again(attempted, 0)

        self.store(c.ApplyPlan(plan=result.accepted, evaluations=(*evaluations, *preempted)), landed)

    def _end(self, delivery: Delivery, outcome: Outcome) -> None:
        """Store the end of an evaluation without a plan, behind what it created: others may act in between."""
        *created, ended = one_by_one(outcome_evaluations(outcome))
        for command in created:
            self.store(command)
        self.store(ended, partial(self._ack, delivery))

    def _ack(self, delivery: Delivery, _: c.Result) -> None:
        self.queue.ack(delivery)

    def _again(self, attempted: Attempted, tries: int) -> None:
        evaluation = attempted.delivery.evaluation
        if tries < scheduler.max_attempts(evaluation.type):
            self._attempt(attempted.delivery, tries)
            return
        outcome = scheduler.exhausted(
            evaluation,
            seed=uuid.UUID(self.clock.uuid()).int,
            now=self.clock.now(),
            snapshot_index=self.state.index,
            last=attempted.made.outcome,
        )
        self._end(attempted.delivery, outcome)

    def _look_at_lost_nodes(self, job_id: str, node_ids: set[str]) -> None:
        job = self.state.jobs.get(("default", job_id))
        nodes = [self.state.nodes.get(node_id) for node_id in sorted(node_ids)]
        if job is not None and not all(node is not None and is_ready(node) for node in nodes):
            made = evaluation_of(job, status.TRIGGER_NODE_UPDATE, self.mint)
            self.store(c.UpsertEvaluations(evaluations=(made,)))

    def _holds(self, delivery: Delivery) -> bool:
        """Whether the evaluation is still outstanding at its worker: its deadline has not passed."""
        return self.queue.broker.token_of(delivery.evaluation.id) == delivery.token

    def fail_attempt(self, number: int) -> None:
        """Let a worker fail before it submits its plan."""
        self.queue.nack(self.attempts.pop(number % len(self.attempts)).delivery)

    def settle(self) -> None:
        """Apply, schedule and run duties until nothing is left to do at this time."""
        for _ in range(ROUNDS_MAX):
            self.apply_all()
            self.keep_house()
            while self.attempts:
                self.submit(0)
                self.apply_all()
            if not self.schedule() and not self._log:
                return
        raise AssertionError("the scheduler keeps changing its mind")


def with_count(job: Job, count: int) -> Job:
    """The job with another count."""
    return replace(job, task_groups=(replace(job.task_groups[0], count=count),))
