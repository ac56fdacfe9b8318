"""The applier's check: what a newer state no longer permits is dropped node by node (invariant B6)."""

from __future__ import annotations

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.plan import Plan
from yurt.structs.resources import Resources
from yurt.testing import factories

NODES = tuple(factories.number_id(number, kind=1) for number in range(3))


def _job(name: str, count: int, cpu: int = 3000) -> Job:
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
    return factories.job(name, task_groups=(factories.group(count=count, tasks=(task,)),))


def _do(state: Snapshot, command: c.AnyCommand) -> Snapshot:
    step = apply(state, command, index=state.index + 1)
    assert isinstance(step.result, c.Applied), step.result
    return step.state


def _state(*jobs: Job) -> Snapshot:
    state = Snapshot.empty()
    for node_id in NODES:
        state = _do(state, c.RegisterNode(node=factories.node(node_id)))
    for job in jobs:
        state = _do(state, c.RegisterJob(job=job))
    return state


def _plan(state: Snapshot, job: Job) -> Plan:
    evaluation = Evaluation(
        id=f"eval-{job.id}-{state.index}", job_id=job.id, type=job.type, triggered_by="job-register"
    )
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=1).plan


def test_two_plans_for_the_same_room_do_not_both_get_it() -> None:
    first, second = _job("first", 1), _job("second", 3)
    state = _state(first, second)
    late = _plan(state, second)
    state = _do(state, c.ApplyPlan(plan=_plan(state, first)))
    result = check_plan(state, late)
    (taken,) = (alloc.node_id for alloc in state.allocs_of_job("default", "first"))
    assert result.rejected_nodes == {taken: "cpu"}
    assert {placement.node_id for placement in result.accepted.placements} == set(NODES) - {taken}
    assert result.refresh_index == state.allocs.index


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("is_purged", [False, True])
def test_a_job_that_was_stopped_since_gets_no_placements(count: int, is_purged: bool) -> None:
    job = _job("web", count, cpu=1)
    state = _state(job)
    late = _plan(state, job)
    assert len(late.placements) == count
    state = _do(state, c.DeregisterJob(namespace="default", job_id=job.id, purge=is_purged))
    result = check_plan(state, late)
    assert result.accepted.is_empty and set(result.rejected_nodes.values()) == {"job is stopped"}
    assert result.refresh_index == state.index


@pytest.mark.parametrize("count", [3, 40])
def test_a_job_that_was_purged_and_registered_again_gets_no_placements_of_the_former_one(count: int) -> None:
    job = _job("web", count, cpu=1)
    state = _state(job)
    late = _plan(state, job)
    state = _do(state, c.DeregisterJob(namespace="default", job_id=job.id, purge=True))
    state = _do(state, c.RegisterJob(job=_job("web", count, cpu=2)))
    assert state.version("default", job.id, late.placements[0].job_version) is not None
    result = check_plan(state, late)
    assert result.accepted.is_empty
    assert set(result.rejected_nodes.values()) == {"job was purged and registered again"}


def test_all_at_once_places_all_or_nothing() -> None:
    first, second = _job("first", 1), replace(_job("second", 3), all_at_once=True)
    state = _state(first, second)
    late = _plan(state, second)
    state = _do(state, c.ApplyPlan(plan=_plan(state, first)))
    result = check_plan(state, late)
    assert result.accepted.is_empty and result.refresh_index and not result.is_full


def test_a_node_that_is_gone_down_or_ineligible_refuses_placements() -> None:
    job = _job("web", 3)
    state = _state(job)
    plan = _plan(state, job)
    state = _do(state, c.DeleteNodes(node_ids=(NODES[0],)))
    state = _do(state, c.SetNodeStatus(node_id=NODES[1], status="down", updated_at=1))
    state = _do(state, c.SetNodeEligibility(node_id=NODES[2], eligibility="ineligible"))
    result = check_plan(state, plan)
    assert result.rejected_nodes == {
        NODES[0]: "node does not exist",
        NODES[1]: "node is not ready for placements",
        NODES[2]: "node is not eligible",
    }
    assert not result.accepted.placements


def test_stops_are_always_accepted_and_make_room_for_what_replaces_them() -> None:
    job = _job("web", 3)
    state = _state(job)
    state = _do(state, c.ApplyPlan(plan=_plan(state, job)))
    changed = _job("web", 3, cpu=3500)
    state = _do(state, c.RegisterJob(job=changed))
    plan = _plan(state, changed)
    assert len(plan.stops) == len(plan.placements) == 1
    assert check_plan(state, plan).is_full
    assert check_plan(state, replace(plan, stops=())).rejected_nodes == {plan.placements[0].node_id: "cpu"}
    down = _do(state, c.SetNodeStatus(node_id=plan.stops[0].node_id, status="down", updated_at=1))
    assert check_plan(down, replace(plan, placements=())).is_full


@pytest.mark.parametrize("is_of_task", [False, True])
def test_a_static_port_that_may_collide_is_shared_and_one_that_may_not_is_refused(is_of_task: bool) -> None:
    address = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
    offered = replace(factories.node().node_resources, networks=(address,))
    state = _do(Snapshot.empty(), c.RegisterNode(node=factories.node(NODES[0], node_resources=offered)))
    open_job, strict = (_port_job(name, loose=name == "open", is_of_task=is_of_task) for name in ("open", "strict"))
    for job in (open_job, strict):
        state = _do(state, c.RegisterJob(job=job))
    late = _plan(state, strict)
    plan = _plan(state, open_job)
    assert len(plan.placements) == 2 and check_plan(state, plan).is_full
    state = _do(state, c.ApplyPlan(plan=plan))
    assert check_plan(state, late).rejected_nodes == {NODES[0]: "reserved alloc port collision"}


def _port_job(name: str, *, loose: bool, is_of_task: bool) -> Job:
    """Two allocations that want the same static port, or one that wants it alone."""
    network = NetworkResource(reserved_ports=(Port(label="http", value=80, ignore_collision=loose),))
    task = factories.task(resources=Resources(cpu=10, memory_mb=10, networks=(network,) if is_of_task else ()))
    networks = () if is_of_task else (network,)
    group = factories.group(count=2 if loose else 1, tasks=(task,), networks=networks)
    return factories.job(name, task_groups=(group,))


def test_an_empty_plan_is_accepted() -> None:
    assert check_plan(_state(), Plan(eval_id="e", namespace="default", job_id="web")).is_full
