"""Canaries of system jobs: a share of the nodes tries the new version first."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.status import JOB_SYSTEM
from yurt.testing import factories
from yurt.testing.cluster_models.attempts import applied, evaluated


def _job(env: str, **update: Any) -> Job:
    strategy = replace(factories.update_strategy(), **{"max_parallel": 2, "canary": 25, **update})
    group = factories.group(tasks=(factories.task(env={"V": env}),), update=strategy, reschedule_policy=None)
    return factories.job("agent", type=JOB_SYSTEM, task_groups=(group,))


def _running(nodes: int) -> Snapshot:
    """Version 0 runs on all nodes, its deployment has ended."""
    made = [c.RegisterNode(node=factories.node()) for _ in range(nodes)]
    state, _ = evaluated(applied(Snapshot.empty(), *made, c.RegisterJob(job=_job("0"))), "agent")
    for _ in range(nodes):
        state, _ = evaluated(_healthy(state), "agent")
    return state


def _healthy(state: Snapshot) -> Snapshot:
    """Clients say that the old ones of each replacement ended and that all new ones are well."""
    updates = []
    for alloc in state.allocs.values():
        if alloc.desired_status == "stop" and alloc.client_status != "complete":
            updates.append(c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete"))
        elif alloc.desired_status == "run" and alloc.deployment_id:
            well = AllocDeploymentStatus(healthy=True, timestamp=factories.NOW)
            updates.append(
                c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", deployment_status=well)
            )
    return applied(state, c.UpdateAllocsFromClient(updates=tuple(updates), now=factories.NOW))


def _versions(state: Snapshot) -> dict[int, int]:
    found: dict[int, int] = {}
    for alloc in state.allocs.values():
        if alloc.desired_status == "run" and alloc.job is not None:
            found[alloc.job.version] = found.get(alloc.job.version, 0) + 1
    return found


@pytest.mark.parametrize(("nodes", "percent", "canaries"), [(10, 25, 3), (10, 1, 1), (3, 50, 2), (4, 100, 4)])
def test_so_many_percent_of_the_nodes_get_the_new_version_and_the_rest_waits(
    nodes: int, percent: int, canaries: int
) -> None:
    state, made = evaluated(applied(_running(nodes), c.RegisterJob(job=_job("1", canary=percent))), "agent")
    deployment = state.latest_deployment("default", "agent")
    assert deployment is not None and made.plan.annotations is not None
    group = deployment.task_groups["web"]
    assert (group.desired_canaries, len(group.placed_canaries), group.desired_total) == (canaries, canaries, nodes)
    assert made.plan.annotations.desired_tg_updates["web"].canary == canaries
    assert _versions(state) == ({0: nodes - canaries, 1: canaries} if canaries < nodes else {1: nodes})
    again, idle = evaluated(_healthy(state), "agent")
    assert idle.plan.is_empty and _versions(again) == _versions(state)


def test_after_the_promotion_the_others_follow_in_steps_and_the_deployment_ends() -> None:
    state, _ = evaluated(applied(_running(7), c.RegisterJob(job=_job("1"))), "agent")
    state = _healthy(state)
    deployment = state.latest_deployment("default", "agent")
    assert deployment is not None
    state = applied(state, c.PromoteDeployment(deployment_id=deployment.id, now=factories.NOW))
    steps = []
    for _ in range(4):
        state, made = evaluated(_healthy(state), "agent")
        steps.append(len(made.plan.placements))
    assert steps == [2, 2, 1, 0] and _versions(state) == {1: 7}
    ended = state.latest_deployment("default", "agent")
    assert ended is not None and ended.status == "successful"


def test_a_first_version_and_one_that_changes_in_place_have_no_canaries() -> None:
    state = _running(3)
    first = state.latest_deployment("default", "agent")
    assert first is not None and first.task_groups["web"].desired_canaries == 0
    meta = replace(_job("0"), task_groups=(replace(_job("0").task_groups[0], shutdown_delay=seconds(1)),))
    state, made = evaluated(applied(state, c.RegisterJob(job=meta)), "agent")
    assert made.plan.in_place and not made.plan.placements
    latest = state.latest_deployment("default", "agent")
    assert latest is not None and latest.task_groups["web"].desired_canaries == 0


def test_a_failed_deployment_places_no_more_canaries() -> None:
    state, _ = evaluated(applied(_running(8), c.RegisterJob(job=_job("1"))), "agent")
    deployment = state.latest_deployment("default", "agent")
    assert deployment is not None
    gone = next(alloc for alloc in state.allocs.values() if alloc.id in deployment.task_groups["web"].placed_canaries)
    update = c.AllocUpdate(id=gone.id, node_id=gone.node_id, client_status="failed")
    failed = c.SetDeploymentStatus(update=_failed(deployment.id), now=factories.NOW)
    state = applied(state, failed, c.UpdateAllocsFromClient(updates=(update,), now=factories.NOW))
    _, made = evaluated(state, "agent")
    assert not any(p.deployment_status is not None and p.deployment_status.canary for p in made.plan.placements)


def _failed(deployment_id: str) -> DeploymentUpdate:
    return DeploymentUpdate(deployment_id=deployment_id, status="failed", status_description="test")


def test_an_evaluation_names_the_deployment_of_its_version_also_one_that_has_ended() -> None:
    state = _running(3)
    latest = state.latest_deployment("default", "agent")
    assert latest is not None and latest.status == "successful"
    assert evaluated(state, "agent")[1].outcome.evaluation.deployment_id == latest.id
    stopped = applied(state, c.RegisterJob(job=replace(_job("0"), stop=True)))
    assert evaluated(stopped, "agent")[1].outcome.evaluation.deployment_id == ""


def test_a_deployment_ends_although_a_node_that_came_later_has_no_room() -> None:
    """Found by the simulator, seed 739950: the new node was waited for, and no deadline bounded that."""
    state = applied(Snapshot.empty(), c.RegisterNode(node=factories.node()), c.RegisterJob(job=_job("0", canary=0)))
    state, _ = evaluated(state, "agent")
    resources = factories.node().node_resources
    small = factories.node(node_resources=replace(resources, cpu=replace(resources.cpu, cpu_shares=1)))
    state, made = evaluated(_healthy(applied(state, c.RegisterNode(node=small))), "agent")

    assert [each.status for each in made.plan.deployment_updates] == ["successful"]
    assert [each.node_id for each in made.outcome.created] == [small.id]
    assert _versions(state) == {0: 1}


def test_a_group_that_the_deployment_lacks_has_no_canaries_to_replace() -> None:
    """Found by the simulator, seed 96009: its evaluations failed."""
    first, second = _job("0"), _job("1")
    jobs = [replace(each, task_groups=(*each.task_groups, _unrolled())) for each in (first, second)]
    state = applied(Snapshot.empty(), c.RegisterNode(node=factories.node()), c.RegisterJob(job=jobs[0]))
    state = _healthy(evaluated(state, "agent")[0])
    state = _healthy(evaluated(applied(state, c.RegisterJob(job=jobs[1])), "agent")[0])
    deployment = state.latest_deployment("default", "agent")
    assert deployment is not None and deployment.status == "running" and list(deployment.task_groups) == ["web"]
    assert evaluated(state, "agent")[1].plan.is_empty


def _unrolled() -> TaskGroup:
    return factories.group("other", tasks=(factories.task(),), update=None, reschedule_policy=None)
