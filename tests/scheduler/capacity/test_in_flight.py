"""Plans laid over a state foresee the usage that applying them brings."""

from __future__ import annotations

from yurt import scheduler
from yurt.fsm import apply
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.evaluation import Evaluation
from yurt.structs.network import NetworkResource, Port
from yurt.structs.plan import InPlaceUpdate, Plan
from yurt.testing import factories


def placed_state() -> tuple[Snapshot, Plan]:
    """A state with nodes and a job, and the plan that places the job."""
    state = Snapshot.empty()
    job = factories.job(task_groups=(factories.group(count=7),))
    for number in range(3):
        node = factories.node(factories.number_id(number, kind=1))
        state = apply(state, c.RegisterNode(node=node), index=state.index + 1).state
    evaluation: Evaluation = factories.evaluation(job)
    state = apply(state, c.RegisterJob(job=job, evaluation=evaluation), index=state.index + 1).state
    return state, scheduler.attempt(state, evaluation, now=UnixNano(1), seed=1).plan


def test_foreseen_usage_is_that_of_the_applied_plan() -> None:
    state, plan = placed_state()
    assert len(plan.placements) == 7
    foreseen = scheduler.with_plans(state, (plan,))
    applied = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    assert foreseen.columns.content() == applied.columns.content()
    assert foreseen.index == state.index
    assert len(foreseen.allocs) == 0


def test_what_is_stored_already_counts_once() -> None:
    state, plan = placed_state()
    applied = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    assert scheduler.with_plans(applied, (plan,)).columns.content() == applied.columns.content()


def test_an_update_in_place_counts_by_its_new_resources() -> None:
    state, plan = placed_state()
    state = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    alloc = next(iter(state.allocs.values()))
    bigger = replace(factories.allocated(factories.group(tasks=(factories.task(),))))
    update = InPlaceUpdate(id=alloc.id, node_id=alloc.node_id, job_version=0, resources=bigger)
    change = Plan(eval_id="e", namespace="default", job_id="web", in_place=(update,))
    foreseen = scheduler.with_plans(state, (change,))
    applied = apply(state, c.ApplyPlan(plan=change), index=state.index + 1).state
    assert foreseen.columns.content() == applied.columns.content()


def test_the_view_with_plans_on_their_way_follows_the_state_and_the_plans() -> None:
    state, plan = placed_state()
    first, second = (replace(plan, placements=part) for part in (plan.placements[:3], plan.placements[3:]))
    way = scheduler.InFlightPlans()
    way.add(state, (first, second))
    whole = scheduler.with_plans(state, (plan,)).columns.content()
    assert way.view(state).columns.content() == whole
    state = apply(state, c.ApplyPlan(plan=first), index=state.index + 1).state
    assert way.view(state).columns.content() == whole
    state = apply(state, c.RegisterNode(node=factories.node(factories.number_id(9, kind=1))), index=9).state
    assert way.view(state).columns.content() == scheduler.with_plans(state, (second,)).columns.content()
    way.remove((first, second))
    assert len(way) == 0 and way.view(state) is state


def test_what_is_exclusive_on_its_way_is_foreseen_until_it_is_refused() -> None:
    host = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
    plain = factories.node()
    node = replace(plain, node_resources=replace(plain.node_resources, networks=(host,)))
    state = apply(Snapshot.empty(), c.RegisterNode(node=node), index=1).state
    port = NetworkResource(mode="host", dynamic_ports=(Port(label="http"),))
    job = factories.job(task_groups=(factories.group(count=3, networks=(port,)),))
    evaluation: Evaluation = factories.evaluation(job)
    state = apply(state, c.RegisterJob(job=job, evaluation=evaluation), index=2).state
    plan = scheduler.attempt(state, evaluation, now=UnixNano(1), seed=1).plan
    assert len(plan.placements) == 3
    way = scheduler.InFlightPlans()
    way.add(state, (plan,))
    state = apply(state, c.SetNodeEligibility(node_id="none", eligibility="eligible"), index=3).state
    assert way.view(state).columns.content() == scheduler.with_plans(state, (plan,)).columns.content()
    way.remove((plan,))
    assert way.view(state) is state
