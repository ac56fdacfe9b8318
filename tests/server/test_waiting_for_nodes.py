"""Evaluations that wait for room on nodes: where an end leaves too little room, no attempt is made (B4)."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.runtime.turns import Turns
from yurt.scheduler import Attempt
from yurt.sdk.value import NANOSECONDS, replace
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.freed_nodes import KEPT, TOGETHER, FreedNodes
from yurt.server.scheduling.plan_applier import outcome_evaluations
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import TaskState
from yurt.structs.cluster import NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.policies import Gang
from yurt.structs.predicates import is_terminal
from yurt.structs.queueing.batch_queue import BatchQueue, FifoQueue
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS
from yurt.testing.replica import Replica

NOW: Final = factories.NOW
POOL: Final = "pool"


def _job(name: str, memory_mb: int, count: int = 1, **changes: Any) -> Job:
    task = factories.task(resources=Resources(cpu=10, memory_mb=memory_mb))
    kind, constraints = changes.pop("type", "batch"), changes.pop("constraints", ())
    group = factories.group(count=count, tasks=(task,), update=None, **changes)
    return factories.job(name, type=kind, task_groups=(group,), constraints=constraints, node_pool=POOL)


class Cluster:
    """Nodes, the queues of their leader, and a job that waits for room."""

    def __init__(self, job: Job, *, nodes: int = 1, filled_mb: int = 7_900) -> None:
        scheduler.load()
        self.replica, self.job, self.env = Replica(), job, FakeEnv()
        self.env.wall_offset_s = (NOW - self.env.now()) / NANOSECONDS
        self.queue = EvalQueue(
            env=self.env, writer=None, current=lambda: self.replica.state, turns=Turns(), limits=QUOTAS
        )
        self.do(c.UpsertNodePools(pools=(NodePool(name=POOL),)))
        self.nodes = [factories.node(node_pool=POOL) for _ in range(nodes)]
        self.fillers: list[str] = []
        for number, node in enumerate(self.nodes):
            self.do(c.RegisterNode(node=node))
            self.fillers.append(self.fill(f"filler-{number}", node, filled_mb))
        self.do(c.RegisterJob(job=job))
        (waiting,) = (each for each in self.attempt(factories.evaluation(job)).outcome.created)
        self.id = waiting.id
        self.do(c.UpsertEvaluations(evaluations=(waiting,)))
        reblocked = self.attempt(self.waiting).outcome.reblock  # the first attempt does not count queued allocations
        assert reblocked is not None
        self.do(c.UpsertEvaluations(evaluations=(reblocked,)))
        self.deliver()

    def do(self, command: c.AnyCommand) -> None:
        self.replica.apply(command)
        self.queue.observe(self.replica.changes, index=self.replica.state.index)

    @property
    def waiting(self) -> Evaluation:
        return self.replica.state.evals[self.id]

    def fill(self, name: str, node: Node, memory_mb: int) -> str:
        job = _job(name, memory_mb)
        placement = factories.placement(job, on=node)
        self.do(c.RegisterJob(job=job))
        self.do(c.ApplyPlan(plan=Plan(eval_id=name, namespace="default", job_id=name, placements=(placement,))))
        return placement.id

    def end(self, alloc_id: str) -> None:
        node_id, states = self.replica.state.allocs[alloc_id].node_id, {"web": TaskState(state=status.TASK_DEAD)}
        update = c.AllocUpdate(id=alloc_id, node_id=node_id, client_status=status.CLIENT_COMPLETE, task_states=states)
        self.do(c.UpdateAllocsFromClient(updates=(update,)))

    def attempt(self, evaluation: Evaluation) -> Attempt:
        state = self.replica.state
        return scheduler.attempt(state, evaluation, now=NOW, seed=state.index, limits=QUOTAS)

    def deliver(self) -> bool:
        """Take the evaluation that waits, if it is ready, attempt it, and block it again in memory if it is blocked."""
        delivered = list(iter(lambda: self.queue.dequeue_now(status.JOB_TYPES), None))
        for delivery in delivered:
            self.queue.ack(delivery)
        for delivery in delivered:
            if delivery.evaluation.id == self.id:
                outcome = self.attempt(delivery.evaluation).outcome
                if outcome.reblock is not None and not self.queue.block_again(outcome.reblock):
                    self.do(c.UpsertEvaluations(evaluations=(outcome.reblock,)))
                return True
        return False

    @property
    def seen(self) -> int:
        """The index up to which the blocked evaluation knows the state."""
        (blocked,) = (each for each in self.queue.blocked.all() if each.id == self.id)
        return blocked.snapshot_index


def test_an_end_that_leaves_too_little_room_causes_no_attempt() -> None:
    cluster = Cluster(_job("waits", 300))
    cluster.end(cluster.fill("small", cluster.nodes[0], 100))
    assert not cluster.deliver() and cluster.seen == cluster.replica.state.index
    cluster.end(cluster.fillers[0])
    assert cluster.deliver() and cluster.attempt(cluster.waiting).plan.placements


def test_room_on_a_node_that_the_job_may_not_use_causes_no_attempt() -> None:
    constraint = Constraint(l_target="${node.unique.name}", operand="=", r_target="elsewhere")
    cluster = Cluster(_job("waits", 300, constraints=(constraint,)))
    cluster.end(cluster.fill("small", cluster.nodes[0], 1))
    assert not cluster.deliver()
    cluster.do(c.RegisterNode(node=factories.node(name="elsewhere", node_pool=POOL)))
    assert cluster.deliver()


def _preempting() -> c.AnyCommand:
    preemption = PreemptionConfig(batch_scheduler_enabled=True)
    return c.SetSchedulerConfiguration(
        configuration=SchedulerConfiguration(preemption_config=preemption), check_index=0
    )


def _queueing() -> c.AnyCommand:
    return c.UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=BatchQueue(fifo=FifoQueue())),))


@pytest.mark.parametrize("make", [_preempting, _queueing], ids=["preemption", "a queue"])
def test_where_free_room_is_not_all_that_counts_an_attempt_is_made(make: Any) -> None:
    cluster = Cluster(_job("waits", 300))
    cluster.replica.apply(make())
    cluster.end(cluster.fill("small", cluster.nodes[0], 1))
    checked = scheduler.still_blocked(cluster.replica.state, cluster.waiting, freed=(), now=NOW, limits=QUOTAS)
    assert checked is None


def test_without_knowledge_of_what_was_freed_an_attempt_is_made() -> None:
    cluster = Cluster(_job("waits", 300))
    state, waiting = cluster.replica.state, cluster.waiting
    for freed, is_certain in ((None, False), ((), True), (("unknown",), True)):
        checked = scheduler.still_blocked(state, waiting, freed=freed, now=NOW, limits=QUOTAS)
        assert (checked is not None) is is_certain
    cluster.do(c.RegisterJob(job=replace(cluster.job, meta={"version": "2"})))
    assert scheduler.still_blocked(cluster.replica.state, waiting, freed=(), now=NOW, limits=QUOTAS) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc") | st.just("*")), max_size=60), st.integers(0, 60))
def test_what_was_freed_after_an_index_is_known_or_nothing_is_said(steps: list[tuple[int, str]], seen: int) -> None:
    freed, index, noted = FreedNodes(), 0, list[tuple[int, str]]()
    for ahead, node_id in steps:
        index += ahead
        if node_id == "*":
            freed.forget(index)
            noted.append((index, "somewhere"))
        else:
            freed.note((node_id,), index)
            noted.append((index, node_id))
    expected = {node_id for at, node_id in noted if at > seen}
    known = freed.after(seen)
    assert set(known) == expected if known is not None else "somewhere" in expected


def test_what_is_noted_late_hides_nothing_newer() -> None:
    freed = FreedNodes()
    freed.note(("newer",), 10)
    freed.note(("late",), 8)
    assert set(freed.after(9) or ()) == {"newer", "late"} and freed.after(10) == ()


def test_many_freed_nodes_are_not_kept() -> None:
    freed = FreedNodes()
    freed.note([f"node {number}" for number in range(TOGETHER + 1)], 5)
    assert freed.after(4) is None and freed.after(5) == ()
    for index in range(6, 6 + TOGETHER + 1):
        freed.note((f"node {index}",), index)
    assert freed.after(5) is None and freed.after(6) is not None
    for index in range(KEPT):
        freed.note(("a",), 100 + index)
    assert freed.after(6 + TOGETHER) == ("a",) and freed.after(6 + TOGETHER - 1) is None


class History(Cluster):
    """Random ends and placements on some nodes, among jobs that wait."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        kind = self.random.choice((status.JOB_BATCH, status.JOB_SERVICE))
        gang = Gang(min=2) if self.random.random() < 0.4 else None
        count = self.random.choice((1, 3)) if gang is None else 3
        rules = (Constraint(operand="distinct_hosts"),) if self.random.random() < 0.3 else ()
        port = NetworkResource(mode="host", reserved_ports=(Port(label="http", value=8080),))
        networks = (port,) if self.random.random() < 0.3 else ()
        memory_mb = self.random.choice((350, 600))
        job = _job("waits", memory_mb, count, type=kind, gang=gang, constraints=rules, networks=networks)
        super().__init__(job, nodes=3)

    def run(self) -> None:
        for number in range(25):
            self.step(number)
            waiting = self.waiting
            if waiting.status != status.EVAL_BLOCKED:
                return
            if not self.queue.blocked.holds(self.id):
                for delivery in iter(lambda: self.queue.dequeue_now(status.JOB_TYPES), None):
                    self.queue.ack(delivery)
                self.carry_out(waiting)
                continue
            plan, outcome = self.attempt(waiting)
            assert plan.is_empty, "an evaluation that can be placed waits"
            assert outcome.reblock is not None and not outcome.created, "it waits for nothing"
            assert outcome.reblock.failed_tg_allocs.keys() == waiting.failed_tg_allocs.keys()

    def carry_out(self, waiting: Evaluation) -> None:
        plan, outcome = self.attempt(waiting)
        ended = outcome_evaluations(outcome)
        self.do(c.UpsertEvaluations(evaluations=ended) if plan.is_empty else c.ApplyPlan(plan=plan, evaluations=ended))

    def step(self, number: int) -> None:
        allocs = sorted(self.replica.state.allocs.values(), key=lambda each: (each.create_index, each.id))
        live = [each for each in allocs if not is_terminal(each)]
        draw, node = self.random.random(), self.random.choice(self.nodes)
        if draw < 0.5 and live:
            self.end(self.random.choice(live).id)
        elif draw < 0.9:
            self.fill(f"other-{number}", node, self.random.choice((50, 150, 400)))
        else:
            self.do(c.SetNodeEligibility(node_id=node.id, eligibility=self.random.choice(("eligible", "ineligible"))))


@settings(max_examples=cases(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_evaluation_that_can_be_placed_waits(seed: int) -> None:
    History(seed).run()
