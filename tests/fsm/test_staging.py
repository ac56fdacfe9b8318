"""Plans that are staged: nothing is seen before all of it is."""

from __future__ import annotations

import pytest
from yurt.broker import cut_plan
from yurt.fsm import apply
from yurt.fsm import snapshot as snapshots
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.rules import RULES_VERSION
from yurt.testing import factories


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


JOB = factories.job()
NODE = factories.node()
START = _with(Snapshot.empty(), c.RegisterNode(node=NODE), c.RegisterJob(job=JOB))


def _part(number: int) -> Plan:
    placement = factories.placement(JOB, on=NODE, index=number)
    return Plan(eval_id="e", namespace="default", job_id=JOB.id, placements=(placement,), all_at_once=True)


def test_staged_parts_appear_together_with_the_last_one_at_its_index() -> None:
    staged = _with(START, *(c.StagePlan(plan_id="p", number=n, plan=_part(n)) for n in range(3)))
    assert not len(staged.allocs) and len(staged.staged_plans) == 3
    done = _with(staged, c.ApplyPlan(plan=_part(3), staged="p", parts=3))
    assert {alloc.create_index for alloc in done.allocs.values()} == {done.index} and len(done.allocs) == 4
    assert not len(done.staged_plans)


def test_a_plan_whose_parts_are_missing_changes_nothing() -> None:
    staged = _with(START, c.StagePlan(plan_id="p", number=0, plan=_part(0)))
    step = apply(staged, c.ApplyPlan(plan=_part(1), staged="p", parts=2), index=staged.index + 1)
    assert isinstance(step.result, c.Rejected) and step.result.kind == "not_found"
    assert not len(step.state.allocs) and len(step.state.staged_plans) == 1
    wrong = apply(staged, c.ApplyPlan(plan=_part(1), staged="p", parts=0), index=staged.index + 1).result
    assert isinstance(wrong, c.Rejected) and wrong.kind == "invalid"
    nameless = apply(START, c.StagePlan(plan_id="", number=0, plan=_part(0)), index=START.index + 1).result
    assert isinstance(nameless, c.Rejected) and nameless.kind == "invalid"


def test_what_a_leader_left_is_dropped_for_one_plan_or_for_all() -> None:
    parts = [c.StagePlan(plan_id=plan_id, number=0, plan=_part(0)) for plan_id in ("a", "b", "c")]
    staged = _with(START, *parts, c.DropStagedPlans(plan_id="b"))
    assert sorted(staged.staged_plans.keys()) == [("a", 0), ("c", 0)]
    assert not len(_with(staged, c.DropStagedPlans()).staged_plans)


def test_staged_parts_survive_a_snapshot() -> None:
    staged = _with(START, c.StagePlan(plan_id="p", number=0, plan=_part(0)))
    again = snapshots.decode(snapshots.encode(staged))
    assert snapshots.digest(again) == snapshots.digest(staged)
    assert len(_with(again, c.ApplyPlan(plan=_part(1), staged="p", parts=1)).allocs) == 2


@pytest.mark.parametrize(("stopped", "placed"), [(0, 3), (1, 0)])
def test_members_of_a_gang_are_counted_after_all_parts_of_its_plan(stopped: int, placed: int) -> None:
    state = _with(START, c.ApplyPlan(plan=_part(9)))
    (running,) = state.allocs.values()
    ends = tuple(AllocStop(id=running.id, node_id=NODE.id) for _ in range(stopped))
    state = _with(state, c.ApplyPlan(plan=replace(_part(0), placements=(), stops=ends)))
    placements = tuple(factories.placement(JOB, on=NODE, index=number) for number in range(3))
    plan = replace(_part(0), all_at_once=False, placements=placements, gang_members={JOB.task_groups[0].name: 4})
    *first, last = cut_plan(plan, 1)
    staged = _with(state, *(c.StagePlan(plan_id="p", number=n, plan=part) for n, part in enumerate(first)))
    command = replace(c.ApplyPlan(plan=last, staged="p", parts=2), rules_version=RULES_VERSION)

    step = apply(staged, command, index=staged.index + 1)

    assert plan.is_indivisible and len(step.state.allocs) == 1 + placed
    assert isinstance(step.result, c.Applied if placed else c.Rejected)
