"""The end of a system job's deployment when nodes leave it."""

from __future__ import annotations

import pytest
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation, AllocDeploymentStatus
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.node import HostVolumeInfo, Node
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.rules import FEWER_CANARIES_RULES
from yurt.structs.status import JOB_SYSTEM
from yurt.structs.volumes.host import HostVolume, HostVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.attempts import applied, evaluated

ASKED = VolumeRequest(name="data", type="host", source="data", read_only=True)
FIRST, SMALL, THIRD = (factories.number_id(number, kind=1) for number in (1, 2, 3))


def _volume(node_id: str) -> HostVolume:
    capability = HostVolumeCapability(access_mode="single-node-multi-writer", attachment_mode="file-system")
    volume_id = f"5{node_id[1:]}"
    return HostVolume(
        id=volume_id, name="data", node_id=node_id, plugin_id="mkdir", requested_capabilities=(capability,)
    )


def _node(node_id: str) -> Node:
    resources = factories.node().node_resources
    shares = 1 if node_id == SMALL else resources.cpu.cpu_shares
    return factories.node(
        node_id,
        host_volumes={"data": HostVolumeInfo(path="/d", id=_volume(node_id).id)},
        node_resources=replace(resources, cpu=replace(resources.cpu, cpu_shares=shares)),
    )


def _job(env: str = "0", canary: int = 0) -> Job:
    update = replace(factories.update_strategy(), max_parallel=1, canary=canary)
    tasks = (factories.task(env={"V": env}),)
    group = factories.group(tasks=tasks, update=update, reschedule_policy=None, volumes={"data": ASKED})
    return factories.job("agent", type=JOB_SYSTEM, task_groups=(group,))


def _healthy(state: Snapshot) -> Snapshot:
    """Clients report the end of what was stopped, and the health of what runs."""
    updates = []
    for alloc in state.allocs.values():
        if alloc.desired_status == "stop" and alloc.client_status != "complete":
            updates.append(c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete"))
        elif alloc.desired_status == "run":
            well = AllocDeploymentStatus(healthy=True, timestamp=factories.NOW)
            updates.append(
                c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", deployment_status=well)
            )
    return applied(state, c.UpdateAllocsFromClient(updates=tuple(updates), now=factories.NOW))


def _deployment(state: Snapshot) -> Deployment:
    found = state.latest_deployment("default", "agent")
    assert found is not None
    return found


def _cluster(*node_ids: str) -> Snapshot:
    made: list[c.AnyCommand] = [c.RegisterNode(node=_node(node_id)) for node_id in node_ids]
    made += [c.PutHostVolume(volume=_volume(node_id)) for node_id in node_ids]
    return applied(Snapshot.empty(), *made, c.RegisterJob(job=_job()))


LEAVING: dict[str, c.AnyCommand] = {
    "loses its volume": c.DeleteHostVolume(namespace="default", id=_volume(SMALL).id),
    "becomes ineligible": c.SetNodeEligibility(node_id=SMALL, eligibility="ineligible"),
    "is removed": c.DeleteNodes(node_ids=(SMALL,)),
}


@pytest.mark.parametrize("event", LEAVING)
def test_a_deployment_ends_without_a_node_that_leaves_before_it_has_room(event: str) -> None:
    """Found by the simulator, seeds 81004, 81028 and 81033: nothing was to be placed there any more."""
    state, made = evaluated(_cluster(FIRST, SMALL), "agent")
    assert _deployment(state).task_groups["web"].desired_total == 2
    state, waiting = evaluated(_healthy(state), "agent")
    assert waiting.plan.is_empty and _deployment(state).status == "running", "the small node may get room in time"

    state, made = evaluated(applied(state, LEAVING[event]), "agent")

    assert not made.outcome.created and _deployment(state).status == "successful"


def _live(state: Snapshot) -> list[Allocation]:
    return [alloc for alloc in state.allocs.values() if alloc.desired_status == "run"]


def _rolling() -> tuple[Snapshot, str]:
    """Version 1 is on one of two nodes, where it is not healthy yet; the id of the other node."""
    state, _ = evaluated(_cluster(FIRST, THIRD), "agent")
    state, _ = evaluated(_healthy(state), "agent")
    assert _deployment(state).status == "successful"
    state, _ = evaluated(applied(state, c.RegisterJob(job=_job("1"))), "agent")
    (outdated,) = (alloc.node_id for alloc in _live(state) if not alloc.previous_allocation)
    return state, outdated


def test_a_deployment_waits_for_the_health_of_those_that_it_has_placed() -> None:
    state, outdated = _rolling()
    state, _ = evaluated(applied(state, c.SetNodeEligibility(node_id=outdated, eligibility="ineligible")), "agent")
    assert _deployment(state).status == "running"
    state, _ = evaluated(_healthy(state), "agent")
    assert _deployment(state).status == "successful"


def test_a_paused_deployment_does_not_end_while_outdated_allocations_wait() -> None:
    state, _ = _rolling()
    paused = DeploymentUpdate(deployment_id=_deployment(state).id, status="paused", status_description="by a user")
    state = _healthy(applied(state, c.SetDeploymentStatus(update=paused, now=factories.NOW)))
    state, made = evaluated(state, "agent")
    assert made.plan.is_empty and _deployment(state).status == "paused"


def test_a_node_that_comes_back_has_a_deployment_of_its_own() -> None:
    state, outdated = _rolling()
    state, _ = evaluated(
        _healthy(applied(state, c.SetNodeEligibility(node_id=outdated, eligibility="ineligible"))), "agent"
    )
    first = _deployment(state)
    state, made = evaluated(applied(state, c.SetNodeEligibility(node_id=outdated, eligibility="eligible")), "agent")
    assert len(made.plan.placements) == 1 and _deployment(state).id != first.id
    assert _deployment(state).task_groups["web"].desired_total == 1
    state, _ = evaluated(_healthy(state), "agent")
    assert _deployment(state).status == "successful"


@pytest.mark.parametrize("event", LEAVING)
def test_a_version_that_ran_on_no_node_is_not_stable_and_the_next_node_gets_it_with_a_deployment(event: str) -> None:
    state, _ = evaluated(_cluster(SMALL), "agent")
    assert _deployment(state).status == "running"
    state, _ = evaluated(applied(state, LEAVING[event]), "agent")
    first = _deployment(state)
    assert (first.status, first.status_description) == (
        "cancelled", "Cancelled because all nodes left before the version was healthy on one",
    )  # fmt: skip
    assert not state.jobs["default", "agent"].stable
    made = evaluated(state, "agent")[1]
    assert made.plan.is_empty, "once is enough"

    state = applied(state, c.RegisterNode(node=_node(FIRST)), c.PutHostVolume(volume=_volume(FIRST)))
    state, made = evaluated(state, "agent")
    assert len(made.plan.placements) == 1 and _deployment(state).id != first.id
    state, _ = evaluated(_healthy(state), "agent")
    assert _deployment(state).status == "successful" and state.jobs["default", "agent"].stable


def test_outdated_allocations_on_nodes_that_come_back_are_replaced_after_a_cancelled_deployment() -> None:
    state, _ = evaluated(_healthy(evaluated(_cluster(FIRST), "agent")[0]), "agent")
    assert _deployment(state).status == "successful"
    ask = factories.task(env={"V": "1"})
    vast = replace(ask, resources=replace(ask.resources, cpu=10**6))
    job = _job("1")
    group = replace(job.task_groups[0], tasks=(vast,))
    state, _ = evaluated(applied(state, c.RegisterJob(job=replace(job, task_groups=(group,)))), "agent")
    state, _ = evaluated(applied(state, c.SetNodeEligibility(node_id=FIRST, eligibility="ineligible")), "agent")
    assert _deployment(state).status == "cancelled" and not state.jobs["default", "agent"].stable
    node = _node(FIRST)
    cpu = replace(node.node_resources.cpu, cpu_shares=10**7)
    larger = replace(node, node_resources=replace(node.node_resources, cpu=cpu))
    eligible = c.SetNodeEligibility(node_id=FIRST, eligibility="eligible")
    state, made = evaluated(applied(state, c.RegisterNode(node=larger), eligible), "agent")
    assert len(made.plan.placements) == 1 and _deployment(state).status == "running"


FOURTH, FIFTH = (factories.number_id(number, kind=1) for number in (4, 5))


def _with_canaries(percent: int, *node_ids: str) -> Snapshot:
    """Version 0 runs on these nodes, and version 1 has its healthy canaries."""
    state, _ = evaluated(_healthy(evaluated(_cluster(*node_ids), "agent")[0]), "agent")
    assert _deployment(state).status == "successful"
    state, _ = evaluated(applied(state, c.RegisterJob(job=_job("1", percent))), "agent")
    return _healthy(state)


def _canaries(state: Snapshot) -> list[Allocation]:
    live = _live(state)
    return [alloc for alloc in live if alloc.deployment_status is not None and alloc.deployment_status.canary]


def _lost(state: Snapshot, node_id: str) -> Snapshot:
    return applied(state, c.SetNodeStatus(node_id=node_id, status="down", updated_at=1))


def _desired(state: Snapshot) -> int:
    return _deployment(state).task_groups["web"].desired_canaries


def _promoted(state: Snapshot) -> Snapshot:
    return applied(state, c.PromoteDeployment(deployment_id=_deployment(state).id, now=factories.NOW))


@pytest.mark.parametrize("number", [3, 4])
def test_another_node_gets_the_version_as_a_canary_when_one_with_a_canary_is_lost(number: int) -> None:
    state = _with_canaries(34, *[FIRST, THIRD, FOURTH, FIFTH][:number])
    assert len(_canaries(state)) == _desired(state) == 2
    lost = _canaries(state)[0].node_id
    state, made = evaluated(_lost(state, lost), "agent")
    assert [each.deployment_status for each in made.plan.placements] == [AllocDeploymentStatus(canary=True)]
    assert lost not in {alloc.node_id for alloc in _canaries(state)} and _desired(state) == 2
    assert _deployment(_promoted(_healthy(state))).task_groups["web"].promoted


def test_a_deployment_desires_fewer_canaries_when_too_few_nodes_are_left() -> None:
    state = _with_canaries(100, FIRST, THIRD)
    assert _desired(state) == 2
    state, made = evaluated(_lost(state, THIRD), "agent")
    assert not made.plan.placements and _desired(state) == 1
    assert evaluated(state, "agent")[1].plan.is_empty, "once is enough"
    state, _ = evaluated(_promoted(state), "agent")
    assert _deployment(state).status == "successful"


def test_a_pause_in_the_moment_in_which_fewer_canaries_are_desired_stays() -> None:
    state = _lost(_with_canaries(100, FIRST, THIRD), THIRD)
    plan = evaluated(state, "agent")[1].plan
    paused = DeploymentUpdate(deployment_id=_deployment(state).id, status="paused", status_description="by a user")
    state = applied(state, c.SetDeploymentStatus(update=paused, now=factories.NOW), c.ApplyPlan(plan=plan))
    assert (_deployment(state).status, _deployment(state).status_description) == ("paused", "by a user")
    assert _desired(state) == 1


def test_servers_of_which_one_is_older_lower_no_number_of_canaries() -> None:
    state = _with_canaries(100, FIRST, THIRD)
    down = c.SetNodeStatus(node_id=THIRD, status="down", updated_at=1)
    state = applied(state, down, rules=FEWER_CANARIES_RULES - 1)
    assert not evaluated(state, "agent")[1].plan.deployment_updates


def test_the_last_canary_is_placed_as_one_when_its_node_comes_back() -> None:
    state = _with_canaries(100, FIRST)
    state, made = evaluated(_lost(state, FIRST), "agent")
    assert not made.plan.placements and _desired(state) == 1
    state, _ = evaluated(applied(state, c.SetNodeStatus(node_id=FIRST, status="ready", updated_at=2)), "agent")
    assert len(_canaries(state)) == 1
    assert _deployment(_promoted(_healthy(state))).task_groups["web"].promoted


def test_a_roll_out_goes_on_when_the_node_is_lost_whose_health_it_waits_for() -> None:
    state, outdated = _rolling()
    (waiting,) = (alloc.node_id for alloc in _live(state) if alloc.node_id != outdated)
    state, made = evaluated(_lost(state, waiting), "agent")
    assert [each.node_id for each in made.plan.placements] == [outdated]
