"""Evaluations that wait for a full quota: woken by each end, they store nothing and look at no node in vain (B4)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.runtime.turns import Turns
from yurt.scheduler import Attempt
from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types import full_limits
from yurt.scheduler.job_types.context import AttemptContext
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.scheduling.eval_queue import STORED_AGAIN_NS, EvalQueue
from yurt.server.scheduling.plan_applier import outcome_evaluations
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import AttemptRecord, Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.policies import Gang, ReschedulePolicy
from yurt.structs.predicates import is_terminal
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS, bound, guaranteed, quota
from yurt.testing.replica import Replica

NOW: Final = factories.NOW
OF_NODES: Final = (
    "nodes_evaluated", "nodes_in_pool", "nodes_available", "nodes_filtered", "class_filtered", "constraint_filtered",
    "nodes_exhausted", "class_exhausted", "dimension_exhausted", "resources_exhausted",
)  # fmt: skip
"""Numbers of nodes in the metrics of a failed placement, which no attempt counts while the quota is full."""


def _job(name: str, count: int = 1, memory_mb: int = 300, **changes: Any) -> Job:
    changes = {"update": None} | changes
    task = factories.task(resources=Resources(cpu=10, memory_mb=memory_mb))
    kind = changes.pop("type", "service")
    return factories.job(name, type=kind, task_groups=(factories.group(count=count, tasks=(task,), **changes),))


class Cluster:
    """A node, a quota of 1,000 MB that an allocation of another job fills, and a job that waits for the quota."""

    def __init__(self, job: Job, *, spec: QuotaSpec | None = None) -> None:
        self.replica, self.job = Replica(), job
        self.node = factories.node()
        self.replica.apply(c.RegisterNode(node=self.node), *bound(spec=spec), c.RegisterJob(job=job))
        self.filler = self.fill("filler", 900)
        self.block()

    def block(self) -> None:
        """Evaluate the job, which waits for the quota then."""
        first = self.attempt(factories.evaluation(self.job))
        (waiting,) = (each for each in first.outcome.created if each.status == status.EVAL_BLOCKED)
        self.replica.apply(c.UpsertEvaluations(evaluations=(waiting,)))
        self.id = waiting.id
        self.store(self.attempt(self.waiting))  # the first attempt does not count queued allocations

    @property
    def waiting(self) -> Evaluation:
        return self.replica.state.evals[self.id]

    def fill(self, name: str, memory_mb: int) -> str:
        return self.place(_job(name, memory_mb=memory_mb))

    def place(self, job: Job, index: int = 0) -> str:
        placement = factories.placement(job, on=self.node, index=index)
        plan = Plan(eval_id=job.id, namespace="default", job_id=job.id, placements=(placement,))
        self.replica.apply(c.RegisterJob(job=job), c.ApplyPlan(plan=plan))
        return placement.id

    def report(self, alloc_id: str, client_status: status.ClientStatus) -> None:
        update = c.AllocUpdate(id=alloc_id, node_id=self.node.id, client_status=client_status)
        self.replica.apply(c.UpdateAllocsFromClient(updates=(update,)))

    def attempt(self, evaluation: Evaluation) -> Attempt:
        state = self.replica.state
        return scheduler.attempt(state, evaluation, now=NOW, seed=state.index, limits=QUOTAS)

    def waits_on(self) -> bool:
        """Whether an attempt at the evaluation that waits looks at no node; it says what one says that does."""
        state, waiting = self.replica.state, self.waiting
        context = AttemptContext.of(state, waiting, now=NOW, ids=SeededIds(1, "test"), seed=1, limits=QUOTAS)
        found = full_limits.still_blocked(context)
        if found is None:
            return False
        made, whole = self.attempt(waiting), self.whole_attempt(waiting)
        assert made.plan.is_empty and whole.plan.is_empty
        assert made.outcome.reblock == made.outcome.evaluation == found
        assert whole.outcome.reblock is not None and not whole.outcome.created
        assert _without_nodes(found) == _without_nodes(whole.outcome.reblock)
        return True

    def whole_attempt(self, evaluation: Evaluation) -> Attempt:
        with mock.patch.object(full_limits, "still_blocked", return_value=None):
            return self.attempt(evaluation)

    def store(self, made: Attempt) -> None:
        assert made.outcome.reblock is not None
        self.replica.apply(c.UpsertEvaluations(evaluations=(made.outcome.reblock,)))


def _without_nodes(evaluation: Evaluation) -> Evaluation:
    metrics = evaluation.failed_tg_allocs.items()
    blank = {name: getattr(AllocationMetric(), name) for name in OF_NODES}
    failed = {name: replace(metric, **blank) for name, metric in metrics}
    return replace(evaluation, failed_tg_allocs=failed, class_eligibility={})


@pytest.mark.parametrize("kind", status.JOB_TYPES)
def test_an_attempt_under_a_full_quota_looks_at_no_node(kind: str) -> None:
    cluster = Cluster(_job("waits", count=1 if kind.startswith("sys") else 2, type=kind))
    assert cluster.waits_on()
    cluster.fill("second", 50)
    assert cluster.waits_on()
    (metric,) = cluster.attempt(cluster.waiting).outcome.evaluation.failed_tg_allocs.values()
    assert metric.quota_exhausted == ("memory exhausted (300 MB needed, 50 of 1000 MB left)",)
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    assert not cluster.waits_on() and cluster.attempt(cluster.waiting).plan.placements


def _register(cluster: Cluster) -> None:
    cluster.replica.apply(c.RegisterJob(job=replace(cluster.job, meta={"version": "2"})))


def _add_node(cluster: Cluster) -> None:
    cluster.replica.apply(c.RegisterNode(node=factories.node()))


def _guarantee(cluster: Cluster) -> None:
    cluster.replica.apply(c.UpsertQuotas(quotas=(guaranteed(quota(), memory_mb=500),)))


@pytest.mark.parametrize(
    ("kind", "change", "waits_on"),
    [
        ("service", _register, False),
        ("service", _guarantee, False),
        ("service", _add_node, True),
        ("system", _add_node, False),
    ],
    ids=["another version", "a guarantee", "a node", "a node for a system job"],
)
def test_what_may_change_the_plan_is_attempted(kind: str, change: Callable[[Cluster], None], waits_on: bool) -> None:
    cluster = Cluster(_job("waits", type=kind))
    change(cluster)
    assert cluster.waits_on() is waits_on


def test_a_gang_of_which_some_members_fit_is_attempted() -> None:
    cluster = Cluster(_job("waits", count=3, memory_mb=300, gang=Gang(min=3)))
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    cluster.fill("second", 400)
    assert not cluster.waits_on() and cluster.attempt(cluster.waiting).plan.is_empty


@pytest.mark.parametrize(("memory_mb", "found"), [(900, 0), (650, 1), (350, 2)])
def test_a_gang_too_many_of_whose_members_the_quota_refuses_looks_at_no_node(memory_mb: int, found: int) -> None:
    cluster = Cluster(_job("waits", count=4, memory_mb=300, gang=Gang(min=3)))
    cluster.fill("second", memory_mb - 20)
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    cluster.store(cluster.attempt(cluster.waiting))
    cluster.fill("third", 20)
    (metric,) = cluster.attempt(cluster.waiting).outcome.evaluation.failed_tg_allocs.values()
    assert metric.gang.startswith(f"{found} of the 3 that must run together") and cluster.waits_on()


def test_an_evaluation_that_has_a_deployment_to_begin_is_attempted() -> None:
    assert not Cluster(_job("waits", update=factories.update_strategy(max_parallel=1))).waits_on()


def _end(cluster: Cluster, alloc_id: str, **stop: Any) -> None:
    """Have a plan ask an allocation of the job that waits to end."""
    stops = (AllocStop(id=alloc_id, node_id=cluster.node.id, **stop),)
    cluster.replica.apply(c.ApplyPlan(plan=Plan(eval_id="", namespace="default", job_id=cluster.job.id, stops=stops)))


def test_allocations_of_a_purged_job_of_the_same_name_make_room_for_their_successors() -> None:
    cluster = Cluster(_job("waits"))
    cluster.replica.apply(c.DeregisterJob(namespace="default", job_id="waits", purge=True))
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    cluster.place(_job("waits", memory_mb=200))
    cluster.replica.apply(c.DeregisterJob(namespace="default", job_id="waits", purge=True))
    cluster.replica.apply(c.RegisterJob(job=cluster.job))
    second = cluster.fill("second", 750)
    cluster.block()
    assert cluster.waiting.failed_tg_allocs and cluster.job.version == 0
    cluster.report(second, status.CLIENT_COMPLETE)
    cluster.fill("third", 600)
    assert not cluster.waits_on() and cluster.attempt(cluster.waiting).plan.placements


def test_a_failed_allocation_is_replaced_in_its_version_while_canaries_try_a_larger_one() -> None:
    policies = {
        "update": factories.update_strategy(max_parallel=1, canary=1),
        "reschedule_policy": ReschedulePolicy(unlimited=True, delay_function="constant"),
    }
    cluster = Cluster(_job("waits", count=2, memory_mb=200, **policies))
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    failed = [cluster.place(cluster.replica.state.jobs[("default", "waits")], index) for index in range(2)]
    newer = _job("waits", count=2, memory_mb=500, **policies)
    cluster.replica.apply(c.RegisterJob(job=newer))
    canary = cluster.attempt(factories.evaluation(newer)).plan
    assert len(canary.placements) == 1 and canary.deployment is not None
    cluster.replica.apply(c.ApplyPlan(plan=canary))
    cluster.fill("second", 100)
    for alloc_id in failed:
        cluster.report(alloc_id, status.CLIENT_FAILED)
    third = cluster.fill("third", 300)
    cluster.replica.apply(c.ApplyPlan(plan=cluster.attempt(factories.evaluation(newer)).plan))
    cluster.block()
    cluster.report(third, status.CLIENT_COMPLETE)
    assert not cluster.waits_on()
    assert {each.job_version for each in cluster.attempt(cluster.waiting).plan.placements} == {0}


def test_a_stop_that_its_client_cannot_confirm_any_more_is_attempted() -> None:
    cluster = Cluster(_job("waits", count=2))
    cluster.report(cluster.filler, status.CLIENT_COMPLETE)
    stopped = cluster.place(cluster.replica.state.jobs[("default", "waits")])
    _end(cluster, stopped)
    cluster.fill("second", 700)
    cluster.block()
    assert cluster.waits_on()
    down = c.SetNodeStatus(node_id=cluster.node.id, status=status.NODE_DOWN, updated_at=0)
    cluster.replica.apply(c.RegisterNode(node=factories.node()), down)
    assert not cluster.waits_on() and cluster.attempt(cluster.waiting).plan.stops


class History(Cluster):
    """Random changes of what the quota counts, and of the job that waits for it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        kind = self.random.choice(status.JOB_TYPES)
        gang = (
            Gang(min=self.random.choice((2, 3)))
            if kind in ("service", "batch") and self.random.random() < 0.5
            else None
        )
        super().__init__(_job("waits", 1 if kind.startswith("sys") else 4, 250, type=kind, gang=gang))

    def run(self) -> None:
        for number in range(20):
            self.random.choice((self.usage, self.usage, self.of_job, self.quota))(number)
            waiting = self.waiting
            if waiting.status != status.EVAL_BLOCKED:
                return
            self.waits_on()  # compares the two kinds of attempt
            plan, outcome = self.attempt(waiting)
            ended = outcome_evaluations(outcome)
            self.replica.apply(
                c.UpsertEvaluations(evaluations=ended) if plan.is_empty else c.ApplyPlan(plan=plan, evaluations=ended)
            )

    def live(self, *, waits: bool) -> list[Allocation]:
        allocs = sorted(self.replica.state.allocs.values(), key=lambda alloc: (alloc.create_index, alloc.id))
        return [alloc for alloc in allocs if not is_terminal(alloc) and (alloc.job_id == "waits") == waits]

    def usage(self, number: int) -> None:
        others = self.live(waits=False)
        if others and self.random.random() < 0.5:
            self.report(self.random.choice(others).id, status.CLIENT_COMPLETE)
        else:
            self.fill(f"filler-{number}", self.random.choice((50, 200, 400)))

    def of_job(self, _: int) -> None:
        if own := self.live(waits=True):
            reported = self.random.choice((status.CLIENT_RUNNING, status.CLIENT_FAILED, status.CLIENT_COMPLETE))
            self.report(self.random.choice(own).id, reported)

    def quota(self, _: int) -> None:
        spec = quota(memory_mb=self.random.choice((600, 1000, 1400)), cpu=self.random.choice((15, 5000)))
        self.replica.apply(c.UpsertQuotas(quotas=(spec,)))


@settings(max_examples=cases(60), deadline=None)
@given(st.integers(0, 2**32))
def test_an_attempt_that_looks_at_no_node_says_what_a_whole_one_says(seed: int) -> None:
    History(seed).run()


# What is stored of it.


class Queue:
    """The queues of a leader with one evaluation that waits for the quota, as its last attempt has left it."""

    def __init__(self, *, checks: bool = False) -> None:
        """`checks`: the leader checks the quota before an attempt."""
        self.cluster = Cluster(_job("waits"))
        scheduler.load()
        self.checks, self.env = checks, FakeEnv()
        self.env.wall_offset_s = (NOW - self.env.now()) / NANOSECONDS
        self.evals = self.begin()
        assert self.evals.blocked.holds(self.cluster.id)

    def begin(self) -> EvalQueue:
        """The queues of a new term."""
        queue = EvalQueue(
            env=self.env, writer=None, current=lambda: self.cluster.replica.state, turns=Turns(),
            limits=QUOTAS if self.checks else None,
        )  # fmt: skip
        queue.restore(self.cluster.replica.state)
        return queue

    def tried(self, **changes: Any) -> Evaluation:
        """The evaluation after one more attempt."""
        record = AttemptRecord(seed="1", state_index=self.cluster.replica.state.index, now=NOW)
        seen = self.cluster.replica.state.index
        return replace(self.cluster.waiting, **({"attempts": (record,), "snapshot_index": seen} | changes))

    def end(self, alloc_id: str) -> None:
        self.cluster.report(alloc_id, status.CLIENT_COMPLETE)
        self.evals.observe(self.cluster.replica.changes, index=self.cluster.replica.state.index)


def test_an_attempt_without_news_is_blocked_in_memory_alone() -> None:
    queue = Queue()
    queue.end(queue.cluster.fill("second", 50))
    delivery = queue.evals.dequeue_now(status.JOB_TYPES)
    assert delivery is not None and delivery.evaluation.id == queue.cluster.id
    assert queue.evals.block_again(queue.tried())
    queue.evals.ack(delivery)
    assert queue.evals.blocked.all() == (queue.tried(),) and not queue.evals.broker.ready
    # A new leader has the row alone: it tries once more, after an end that the row's attempt has not seen.
    assert queue.begin().broker.ready == 1


def test_an_end_under_a_quota_that_stays_full_causes_no_attempt() -> None:
    queue = Queue(checks=True)
    queue.end(queue.cluster.fill("second", 50))
    assert not queue.evals.broker.ready and queue.evals.blocked.holds(queue.cluster.id)
    queue.end(queue.cluster.filler)
    assert queue.evals.broker.ready == 1 and not len(queue.evals.blocked)


def test_an_attempt_is_made_a_minute_after_the_last_although_the_quota_is_full() -> None:
    queue = Queue(checks=True)
    queue.env.wall_offset_s += STORED_AGAIN_NS / NANOSECONDS
    queue.end(queue.cluster.fill("second", 50))
    assert queue.evals.broker.ready == 1


def test_what_came_during_a_check_of_the_quota_wakes_the_evaluation() -> None:
    queue = Queue(checks=True)
    second, third = queue.cluster.fill("second", 50), queue.cluster.filler
    state, queue.evals = queue.cluster.replica.state, queue.begin()
    queue.end(second)
    (blocked,) = queue.evals.blocked.all()
    assert blocked.snapshot_index == queue.cluster.replica.state.index > state.index
    queue.end(third)
    assert queue.evals.broker.ready == 1


def test_other_numbers_alone_are_not_stored_again() -> None:
    queue = Queue()
    (name, metric), *_ = queue.cluster.waiting.failed_tg_allocs.items()
    assert queue.evals.block_again(queue.tried(failed_tg_allocs={name: replace(metric, quota_exhausted=("other",))}))
    assert not queue.evals.block_again(queue.tried(failed_tg_allocs={"db": metric}))


def test_what_came_during_an_attempt_without_news_wakes_it_again() -> None:
    queue = Queue()
    queue.end(queue.cluster.fill("second", 50))
    delivery, tried = queue.evals.dequeue_now(status.JOB_TYPES), queue.tried()
    assert delivery is not None
    queue.end(queue.cluster.fill("third", 50))
    assert queue.evals.block_again(tried) and not queue.evals.broker.ready
    queue.evals.ack(delivery)
    assert queue.evals.broker.ready == 1 and not len(queue.evals.blocked)


@pytest.mark.parametrize(
    "changes",
    [
        {"quota_limit_reached": "large"},
        {"queued_allocations": {"web": 7}},
        {"status": status.EVAL_COMPLETE},
        {"modify_time": UnixNano(NOW + STORED_AGAIN_NS)},
    ],
    ids=["another quota", "another number", "complete", "a minute later"],
)
def test_an_attempt_with_news_and_one_a_minute_after_the_last_are_stored(changes: dict[str, Any]) -> None:
    queue = Queue()
    assert not queue.evals.block_again(replace(queue.tried(), **changes))


def test_an_evaluation_that_was_canceled_during_its_attempt_does_not_wait_again() -> None:
    queue = Queue()
    tried = queue.tried()
    canceled = replace(queue.cluster.waiting, status=status.EVAL_CANCELED)
    queue.cluster.replica.apply(c.UpsertEvaluations(evaluations=(canceled,)))
    assert not queue.evals.block_again(tried)
