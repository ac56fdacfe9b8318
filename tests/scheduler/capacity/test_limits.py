"""Limits beside the nodes: a quota of memory for a namespace stands for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from yurt import scheduler
from yurt.broker import BlockedEvals
from yurt.fsm import apply
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import NodeMemoryResources
from yurt.structs.policies import Gang
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.quotas import QUOTAS, bound, quota


def _job(name: str, count: int, memory_mb: int, **changes: Any) -> Job:
    task = factories.task(resources=Resources(cpu=10, memory_mb=memory_mb))
    return factories.job(name, task_groups=(factories.group(count=count, tasks=(task,), update=None),), **changes)


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


def _system_job(**asked: Resources) -> Job:
    """A system job with a group for each of these."""
    tasks = {name: factories.task(resources=resources) for name, resources in asked.items()}
    groups = tuple(factories.group(name, tasks=(task,), update=None) for name, task in tasks.items())
    return factories.job("sys", type="system", task_groups=groups)


def _state(*jobs: Job, nodes: int = 2, spec: QuotaSpec | None = None, first: c.AnyCommand | None = None) -> Snapshot:
    made: list[c.AnyCommand] = [c.RegisterNode(node=factories.node()) for _ in range(nodes)]
    made += [*(() if first is None else (first,)), *bound(spec=spec), *(c.RegisterJob(job=job) for job in jobs)]
    return _with(Snapshot.empty(), *made)


def _attempt(state: Snapshot, job: Job) -> scheduler.Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=1, limits=QUOTAS)


def test_a_limit_stops_placing_and_the_evaluation_waits_under_its_name() -> None:
    job = _job("web", 4, 300)
    made = _attempt(_state(job), job)
    ended = made.outcome.evaluation
    assert len(made.plan.placements) == 3 and ended.quota_limit_reached == "small"
    assert ended.failed_tg_allocs["web"].quota_exhausted == ("memory exhausted (300 MB needed, 100 of 1000 MB left)",)
    assert [blocked.quota_limit_reached for blocked in made.outcome.created] == ["small"]
    assert len(scheduler.attempt(_state(job), Evaluation(id="e", job_id="web", triggered_by="job-register"),
                                 now=factories.NOW, seed=1).plan.placements) == 4  # fmt: skip


def test_what_a_replacement_gives_back_counts() -> None:
    job = _job("web", 3, 300)
    state = _state(job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan), c.RegisterJob(job=_job("web", 3, 310)))
    made = _attempt(state, job)
    assert len(made.plan.placements) == len(made.plan.stops) == 3


def test_a_system_job_meets_the_limit_on_its_last_nodes() -> None:
    job = _job("sys", 1, 400, type="system")
    made = _attempt(_state(job, nodes=3), job)
    assert len(made.plan.placements) == 2
    assert {blocked.quota_limit_reached for blocked in made.outcome.created} == {"small"}


def test_a_system_job_waits_for_its_limit_in_one_evaluation_for_all_nodes() -> None:
    job = _job("sys", 1, 400, type="system")
    state = _state(job, nodes=9)
    (waiting,) = _attempt(state, job).outcome.created
    assert not waiting.node_id and waiting.failed_tg_allocs["web"].coalesced_failures == 6
    again = scheduler.attempt(state, waiting, now=factories.NOW, seed=2, limits=QUOTAS).outcome
    assert again.reblock is not None and again.reblock.id == waiting.id and again.created == ()
    blocked = BlockedEvals()
    assert not blocked.block(again.reblock)
    blocked.unblock_class(next(iter(state.nodes.values())).computed_class, index=99)
    assert blocked.take_unblocked(9) == (), "no node has what it lacks"
    blocked.unblock_limit("small", index=99)
    assert blocked.take_unblocked(9) == (again.reblock,)


def test_a_full_node_is_waited_for_apart_from_the_limit() -> None:
    job = _job("sys", 1, 400, type="system")
    state = _state(job, nodes=4)
    full = min(state.nodes.values(), key=lambda each: each.id)
    small = replace(full, node_resources=replace(full.node_resources, memory=NodeMemoryResources(memory_mb=100)))
    made = _attempt(_with(state, c.RegisterNode(node=small)), job)
    assert len(made.plan.placements) == 2
    assert {each.node_id: each.quota_limit_reached for each in made.outcome.created} == {"": "small", full.id: ""}


def test_a_limit_on_what_a_node_grants_is_waited_for_with_the_node() -> None:
    cores, plain = Resources(cores=1, memory_mb=10), Resources(cpu=300, memory_mb=10)
    job = _system_job(cores=cores, plain=plain)
    made = _attempt(_state(job, nodes=2, spec=quota(cpu=500)), job)
    assert [placement.task_group for placement in made.plan.placements] == ["plain"], "a core has 1,000 MHz"
    waits = {each.node_id: (each.quota_limit_reached, *each.failed_tg_allocs) for each in made.outcome.created}
    assert waits.pop("") == ("small", "plain")
    assert list(waits.values()) == [("small", "cores")] * 2


def _two_limits() -> tuple[Snapshot, Job]:
    """A system job whose two groups meet different limits: "high" that of the parent, "wide" that of the child."""
    job = _system_job(high=Resources(cpu=400, memory_mb=10), wide=Resources(cpu=10, memory_mb=400))
    parent = c.UpsertQuotas(quotas=(quota("parent", cpu=1000),))
    return _state(job, nodes=4, spec=quota("child", parent="parent", memory_mb=1000), first=parent), job


def test_allocations_of_several_limits_wait_in_one_evaluation_for_the_outermost() -> None:
    state, job = _two_limits()
    made = _attempt(state, job).outcome
    (waiting,) = made.created
    assert (waiting.node_id, waiting.quota_limit_reached) == ("", "parent")
    assert set(waiting.failed_tg_allocs) == {"high", "wide"}
    assert made.evaluation.quota_limit_reached == "parent"


def test_an_evaluation_that_waits_again_tells_what_it_waits_for_now() -> None:
    state, job = _two_limits()
    made = _attempt(state, job)
    (waiting,) = made.outcome.created
    state = _with(state, c.ApplyPlan(plan=made.plan), c.UpsertQuotas(quotas=(quota("parent", cpu=9000),)))
    again = scheduler.attempt(state, waiting, now=factories.NOW, seed=2, limits=QUOTAS)
    assert {placement.task_group for placement in again.plan.placements} == {"high"}
    assert again.outcome.reblock is not None and again.outcome.created == ()
    assert again.outcome.reblock.quota_limit_reached == "child"
    assert set(again.outcome.reblock.failed_tg_allocs) == {"wide"}
    assert again.outcome.reblock.queued_allocations == {"wide": 2}


@pytest.mark.parametrize("job_type", ["system", "sysbatch"])
def test_nodes_that_wait_for_a_limit_still_do_after_too_many_refused_plans(job_type: str) -> None:
    job = _job("sys", 1, 400, type=job_type)
    state = _state(job, nodes=4)
    (waiting,) = _attempt(state, job).outcome.created
    last = scheduler.attempt(state, waiting, now=factories.NOW, seed=2, limits=QUOTAS).outcome
    ended = scheduler.exhausted(waiting, seed=3, now=factories.NOW, snapshot_index=state.index, last=last)
    (again,) = ended.created
    assert (ended.evaluation.status, ended.evaluation.blocked_eval) == ("failed", again.id)
    assert (again.node_id, set(again.failed_tg_allocs)) == ("", {"web"})
    by_limit, by_time = BlockedEvals(), BlockedEvals()
    assert not by_limit.block(again) and not by_time.block(again)
    by_limit.unblock_limit("small", index=state.index + 1)
    assert by_limit.take_unblocked(9) == by_time.unblock_failed() == (again,)
    retried = scheduler.attempt(state, again, now=factories.NOW, seed=4, limits=QUOTAS).outcome.reblock
    assert retried is not None and not by_time.block(retried)
    assert by_time.unblock_failed() == (), "it waits for the limit, and no longer for a minute"


def test_a_node_without_capacity_keeps_its_evaluation_after_too_many_refused_plans() -> None:
    waiting = Evaluation(id="e", job_id="sys", type="system", status="blocked", node_id="n1")
    (again,) = scheduler.exhausted(waiting, seed=3, now=factories.NOW, snapshot_index=9).created
    blocked = BlockedEvals()
    assert not blocked.block(again)
    assert blocked.unblock_node("n1", index=10) == (again,)


def test_the_applier_refuses_what_two_plans_take_together() -> None:
    one, two = _job("one", 2, 300), _job("two", 2, 300)
    state = _state(one, two)
    first, second = _attempt(state, one).plan, _attempt(state, two).plan
    after = _with(state, c.ApplyPlan(plan=first))
    result = scheduler.check_plan(after, second, QUOTAS)
    assert len(result.accepted.placements) <= 1 and not result.is_full
    assert set(result.rejected_nodes.values()) == {"quota small: memory exhausted (300 MB needed, 100 of 1000 MB left)"}
    assert scheduler.check_plan(after, second).is_full


def test_what_plans_on_their_way_take_counts() -> None:
    one, two = _job("one", 2, 300), _job("two", 2, 300)
    state = _state(one, two)
    first, second = _attempt(state, one).plan, _attempt(state, two).plan
    writing = scheduler.InFlightPlans()
    writing.add(state, (first,))
    views = [writing.view(state), scheduler.with_plans(state, (first,))]
    late = [scheduler.check_plan(view, second, QUOTAS) for view in views]
    reason = "quota small: memory exhausted (300 MB needed, 100 of 1000 MB left)"
    assert all(set(each.rejected_nodes.values()) == {reason} for each in late)
    assert [len(_attempt(view, two).plan.placements) for view in views] == [1, 1]
    stored = _with(state, c.ApplyPlan(plan=first))
    assert len(_attempt(writing.view(stored), two).plan.placements) == 1, "a stored plan counts once"


def test_plans_on_their_way_under_another_limit_do_not_count() -> None:
    one, two = _job("one", 3, 300, namespace="other"), _job("two", 3, 300)
    elsewhere = bound("other", spec=quota("large"))
    state = _with(_state(two), *elsewhere, c.RegisterJob(job=one))
    ahead = replace(
        _attempt(_with(_state(), c.RegisterJob(job=_job("one", 3, 300))), _job("one", 3, 300)).plan, namespace="other"
    )
    assert len(_attempt(scheduler.with_plans(state, (ahead,)), two).plan.placements) == 3


def test_blocked_evaluations_wake_when_something_under_their_limit_is_freed() -> None:
    blocked = BlockedEvals()
    waiting = Evaluation(id="e", job_id="web", status="blocked", quota_limit_reached="small", snapshot_index=5)
    assert not blocked.block(waiting)
    blocked.unblock_limit("other", index=6)
    assert blocked.take_unblocked(9) == ()
    blocked.unblock_limit("small", index=6)
    assert blocked.take_unblocked(9) == (waiting,)
    assert blocked.block(waiting), "the unblock at index 6 came after its snapshot"
    assert not blocked.block(replace(waiting, snapshot_index=7))


def test_a_gang_that_finds_no_room_takes_nothing_of_the_limit() -> None:
    task = factories.task(resources=Resources(cpu=10, memory_mb=300))
    gang = factories.group("gang", count=4, tasks=(task,), update=None, gang=Gang())
    other = factories.group("other", count=3, tasks=(task,), update=None)
    job = factories.job("both", task_groups=(gang, other))
    made = _attempt(_state(job), job)
    assert {placement.task_group for placement in made.plan.placements} == {"other"}
    assert len(made.plan.placements) == 3
