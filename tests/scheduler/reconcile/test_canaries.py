"""Canaries whose nodes leave, or that fail, while they try a new version of a service job."""

from __future__ import annotations

from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.job import Job, ScalingEvent
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.policies import DisconnectStrategy, Gang, Rendezvous, ReschedulePolicy
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster


def _service(count: int, cpu: int = 100, **changes: Any) -> Job:
    task = factories.task(resources=replace(factories.task().resources, cpu=cpu))
    return factories.job(task_groups=(factories.group(count=count, tasks=(task,), **changes),))


def _canarying(count: int = 3, **group: Any) -> tuple[PlannedCluster, Job, Allocation]:
    """A cluster whose job tries a new version by one canary, or by a gang of them; returns the first."""
    cluster = PlannedCluster()
    update = factories.update_strategy(canary=1, max_parallel=1)
    cluster.register(old := _service(count, update=update, **group))
    cluster.settle(old)
    cluster.register(new := _service(count, cpu=200, update=update, **group))
    cluster.settle(new)
    canary, *_ = [alloc for alloc in cluster.live(new) if alloc.job is not None and alloc.job.version == 1]
    return cluster, new, canary


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("down", "alloc is lost since its node is down"),
        ("drain", "alloc is being migrated"),
        ("fail", "alloc was rescheduled because it failed"),
    ],
)
@pytest.mark.parametrize("are_others_gone", [False, True])
def test_a_canary_that_leaves_is_replaced_by_a_canary_of_its_name(way: str, told: str, are_others_gone: bool) -> None:
    cluster, job, canary = _canarying()
    leaving = cluster.live(job) if are_others_gone and way != "fail" else [canary]
    if way == "down":
        for node_id in sorted({alloc.node_id for alloc in leaving}):
            cluster.do(c.SetNodeStatus(node_id=node_id, status="down", updated_at=1))
    elif way == "drain":
        moving = dict.fromkeys((alloc.id for alloc in leaving), DesiredTransition(migrate=True))
        cluster.do(c.SetDesiredTransitions(transitions=moving, now=cluster.now))
    else:
        cluster.end(canary, status.CLIENT_FAILED)
        marked = {canary.id: DesiredTransition(reschedule=True)}
        cluster.do(c.SetDesiredTransitions(transitions=marked, now=cluster.now))
        cluster.now = UnixNano(cluster.now + seconds(3600))
    cluster.evaluate(job)
    gone = cluster.state.allocs[canary.id]
    assert (gone.desired_status, gone.desired_description) == ("stop", told)
    (new,) = [alloc for alloc in cluster.live(job) if alloc.job is not None and alloc.job.version == 1]
    assert new.deployment_status is not None and new.deployment_status.canary
    assert (new.name, new.previous_allocation, gone.next_allocation) == (canary.name, canary.id, new.id)
    assert (new.reschedule_tracker is not None) == (way == "fail")
    versions = sorted(alloc.job.version for alloc in cluster.live(job) if alloc.job is not None)
    assert versions == [0, 0, 0, 1]


def test_a_healthy_canary_that_is_gone_permits_no_promotion_until_its_replacement_is_healthy() -> None:
    cluster, job, canary = _canarying()
    cluster.do(c.SetNodeStatus(node_id=canary.node_id, status="down", updated_at=1))
    cluster.evaluate(job)
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None
    promotion = c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now)
    step = apply(cluster.state, promotion, index=cluster.state.index + 1)
    assert isinstance(step.result, c.Rejected)
    cluster.settle(job)
    cluster.do(promotion)
    cluster.settle(job)
    assert cluster.names(job) == ["web.web[0]", "web.web[1]", "web.web[2]"]
    assert {alloc.job.version for alloc in cluster.live(job) if alloc.job is not None} == {1}


def test_no_canary_is_placed_while_a_lost_client_may_still_run_one() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    cluster, new, canary = _canarying(2, disconnect=strategy)
    cluster.do(c.SetNodeStatus(node_id=canary.node_id, status="down", updated_at=1))
    cluster.evaluate(new)
    (follow,) = cluster.followups
    versions = [alloc.job.version for alloc in cluster.live(new) if alloc.job is not None]
    assert set(versions) == {0}
    cluster.now = UnixNano(follow.wait_until)
    cluster.settle(new)
    versions = sorted(alloc.job.version for alloc in cluster.live(new) if alloc.job is not None)
    assert versions == [0, 0, 1]


def test_a_deployment_wants_all_that_its_group_will_have_also_what_waits_for_the_canaries() -> None:
    cluster, job, canary = _canarying()
    cluster.do(c.PromoteDeployment(deployment_id=canary.deployment_id, now=cluster.now))
    cluster.settle(job)
    update = factories.update_strategy(canary=1, max_parallel=1, auto_promote=True, auto_revert=True)
    cluster.register(more := _service(5, cpu=300, update=update))
    cluster.do(c.SetNodeStatus(node_id=cluster.live(job)[0].node_id, status="down", updated_at=1))
    cluster.evaluate(more)
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None
    state = deployment.task_groups["web"]
    assert (state.desired_total, state.desired_canaries, len(state.placed_canaries)) == (5, 1, 1)
    assert state.auto_promote and state.auto_revert and state.progress_deadline == update.progress_deadline
    assert deployment.status_description == "Deployment is running pending automatic promotion"


def test_a_group_that_is_updated_all_at_once_has_no_canaries() -> None:
    job = factories.job(task_groups=(factories.group(count=3),))
    cluster = PlannedCluster()
    cluster.register(job)
    cluster.settle(job)
    update = factories.update_strategy(max_parallel=0, canary=1)
    newer = factories.job(
        task_groups=(factories.group(count=3, update=update, tasks=(factories.task(env={"V": "2"}),)),)
    )
    cluster.register(newer)
    cluster.evaluate(newer)
    assert cluster.names(newer) == [f"web.web[{index}]" for index in range(3)]
    assert {alloc.job.version for alloc in cluster.live(newer) if alloc.job is not None} == {1}


def test_a_canary_that_fails_while_it_is_to_migrate_is_replaced_once() -> None:
    cluster, job, canary = _canarying()
    transitions = {canary.id: DesiredTransition(migrate=True, reschedule=True)}
    cluster.do(c.SetDesiredTransitions(transitions=transitions, now=cluster.now))
    cluster.end(canary, status.CLIENT_FAILED)
    made = scheduler.attempt(cluster.state, factories.evaluation(job), now=UnixNano(cluster.now + seconds(60)), seed=1)
    assert [(stop.id, stop.description) for stop in made.plan.stops] == [(canary.id, "alloc is being migrated")]
    (placed,) = made.plan.placements
    assert (placed.name, placed.previous_allocation) == (canary.name, canary.id)
    assert placed.deployment_status is not None and placed.deployment_status.canary


def test_a_version_that_comes_while_a_lost_client_is_waited_for_has_its_canaries_afterwards() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    cluster = PlannedCluster()
    cluster.register(old := _service(2, disconnect=strategy))
    cluster.settle(old)
    lost = cluster.live(old)[0]
    cluster.do(c.SetNodeStatus(node_id=lost.node_id, status="down", updated_at=1))
    update = factories.update_strategy(canary=1)
    cluster.register(new := _service(2, cpu=200, disconnect=strategy, update=update))
    cluster.evaluate(new)
    deployment = cluster.state.latest_deployment(new.namespace, new.id)
    assert deployment is not None and deployment.task_groups["web"].desired_canaries == 1
    cluster.now = UnixNano(cluster.followups[0].wait_until)
    cluster.settle(new)
    of_new = [alloc for alloc in cluster.live(new) if alloc.job is not None and alloc.job.version == 1]
    assert [alloc.deployment_status is not None and alloc.deployment_status.canary for alloc in of_new] == [True]


def test_a_group_that_loses_all_its_clients_while_it_tries_a_version_has_members_and_a_canary_afterwards() -> None:
    cluster, job, _ = _canarying(2, disconnect=DisconnectStrategy(stop_on_client_after=seconds(60), replace=True))
    for node_id in sorted({alloc.node_id for alloc in cluster.live(job)}):
        cluster.do(c.SetNodeStatus(node_id=node_id, status="down", updated_at=1))
    cluster.evaluate(job)
    assert not cluster.live(job)
    cluster.now = UnixNano(cluster.followups[0].wait_until)
    cluster.settle(job)
    *members, canary = sorted(cluster.live(job), key=lambda alloc: alloc.deployment_status is not None)
    assert canary.deployment_status is not None and canary.deployment_status.canary
    assert [alloc.job.version for alloc in members if alloc.job is not None] == [0, 0]
    cluster.do(c.PromoteDeployment(deployment_id=canary.deployment_id, now=cluster.now))
    cluster.settle(job)
    assert cluster.names(job) == ["web.web[0]", "web.web[1]"]


def test_what_a_growing_group_updates_after_its_promotion_leaves_the_canaries_their_names() -> None:
    cluster = PlannedCluster()
    update = factories.update_strategy(canary=1)
    cluster.register(old := _service(1, update=update))
    cluster.settle(old)
    cluster.register(new := _service(4, cpu=200, update=update))
    cluster.settle(new)
    deployment = cluster.state.latest_deployment(new.namespace, new.id)
    assert deployment is not None
    cluster.do(c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now))
    cluster.settle(new)
    assert cluster.names(new) == [f"web.web[{index}]" for index in range(4)]


def test_a_canary_takes_no_name_that_a_promoted_one_keeps_after_its_deployment_failed() -> None:
    cluster, new, canary = _canarying()
    deployment = cluster.state.latest_deployment(new.namespace, new.id)
    assert deployment is not None
    cluster.do(c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now))
    failed = DeploymentUpdate(deployment_id=deployment.id, status=status.DEPLOYMENT_FAILED)
    cluster.do(c.SetDeploymentStatus(update=failed, now=cluster.now))
    assert [alloc.name for alloc in cluster.live(new)].count(canary.name) == 2
    (group,) = new.task_groups
    cluster.register(grown := replace(new, task_groups=(replace(group, count=4),)))
    cluster.evaluate(grown)
    names = [(alloc.name, alloc.job.version) for alloc in cluster.live(grown) if alloc.job is not None]
    assert len(names) == len(set(names)), names


def _scaled(group: dict[str, Any], *, count: int, to: int) -> tuple[PlannedCluster, Job]:
    """A cluster whose job was scaled and then got a new version with the new count, as `-preserve-counts` keeps it."""
    cluster = PlannedCluster()
    cluster.register(old := _service(count, **group))
    cluster.settle(old)
    event = ScalingEvent(count=to)
    cluster.do(c.ScaleJob(namespace="default", job_id=old.id, group="web", event=event, count_max=100))
    cluster.evaluate(old)
    cluster.settle(old)
    cluster.register(new := _service(to, cpu=200, **group))
    cluster.evaluate(new)
    return cluster, new


def test_a_gang_that_was_scaled_gets_as_many_canaries_as_must_run_together_now() -> None:
    update = factories.update_strategy(canary=2, max_parallel=1)
    cluster, job = _scaled({"update": update, "gang": Gang()}, count=2, to=4)
    versions = sorted(alloc.job.version for alloc in cluster.live(job) if alloc.job is not None)
    assert versions == [1] * 4 + [2] * 4
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.task_groups["web"].desired_canaries == 4


def test_a_scaled_gang_with_a_minimum_keeps_its_number_of_canaries() -> None:
    update = factories.update_strategy(canary=2, max_parallel=1)
    cluster, job = _scaled({"update": update, "gang": Gang(min=2)}, count=2, to=4)
    versions = sorted(alloc.job.version for alloc in cluster.live(job) if alloc.job is not None)
    assert versions == [1] * 4 + [2] * 2


def test_a_group_with_a_rendezvous_that_was_scaled_is_updated_all_at_once() -> None:
    gang = Gang(rendezvous=Rendezvous(port="rendezvous"))
    cluster, job = _scaled({"update": factories.update_strategy(max_parallel=2), "gang": gang}, count=2, to=4)
    versions = [alloc.job.version for alloc in cluster.live(job) if alloc.job is not None]
    assert versions == [2] * 4


def _disconnecting() -> DisconnectStrategy:
    return DisconnectStrategy(lost_after=seconds(600), replace=True, reconcile="keep_original")


def _of_old(cluster: PlannedCluster, job: Job, name: str) -> Allocation:
    (old,) = [alloc for alloc in cluster.live(job) if alloc.name == name and _version(alloc) == 0]
    return old


def _version(alloc: Allocation) -> int:
    assert alloc.job is not None
    return alloc.job.version


def _reachable(cluster: PlannedCluster, job: Job) -> list[tuple[str, int, bool]]:
    """The name and version of each allocation in contact, and whether it is a canary."""
    return sorted(
        (alloc.name, _version(alloc), alloc.deployment_status is not None and bool(alloc.deployment_status.canary))
        for alloc in cluster.live(job)
        if alloc.client_status != status.CLIENT_UNKNOWN
    )


def test_a_canary_that_disconnects_is_replaced_by_a_canary_and_no_group_member() -> None:
    cluster, job, canary = _canarying(2, disconnect=_disconnecting())
    old = _of_old(cluster, job, canary.name)
    for alloc in (canary, old):
        cluster.do(c.SetNodeStatus(node_id=alloc.node_id, status="disconnected", updated_at=1))
        cluster.evaluate(job)
    assert _reachable(cluster, job) == [("web.web[0]", 0, False), ("web.web[0]", 1, True), ("web.web[1]", 0, False)]
    successors = [cluster.state.allocs[cluster.state.allocs[away.id].next_allocation] for away in (canary, old)]
    assert [(after.previous_allocation, _version(after)) for after in successors] == [(canary.id, 1), (old.id, 0)]


@pytest.mark.parametrize("who", ["canary", "old"])
def test_a_returning_allocation_competes_with_its_replacement_and_not_with_the_other_version(who: str) -> None:
    cluster, job, canary = _canarying(2, disconnect=_disconnecting())
    old = _of_old(cluster, job, canary.name)
    away, other = (canary, old) if who == "canary" else (old, canary)
    cluster.do(c.SetNodeStatus(node_id=away.node_id, status="disconnected", updated_at=1))
    cluster.evaluate(job)
    cluster.do(c.SetNodeStatus(node_id=away.node_id, status="initializing", updated_at=2))
    update = c.AllocUpdate(id=away.id, node_id=away.node_id, client_status="running", task_states=away.task_states)
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now))
    cluster.do(c.SetNodeStatus(node_id=away.node_id, status="ready", updated_at=3))
    cluster.evaluate(job)
    assert cluster.state.allocs[other.id].desired_status == status.DESIRED_RUN
    assert _reachable(cluster, job) == [("web.web[0]", 0, False), ("web.web[0]", 1, True), ("web.web[1]", 0, False)]


def test_a_disconnected_canary_that_is_not_to_be_replaced_gets_no_second_one() -> None:
    cluster, job, canary = _canarying(2, disconnect=DisconnectStrategy(lost_after=seconds(600), replace=False))
    cluster.do(c.SetNodeStatus(node_id=canary.node_id, status="disconnected", updated_at=1))
    cluster.evaluate(job)
    assert sorted(map(_version, cluster.live(job))) == [0, 0, 1]
    assert cluster.state.allocs[canary.id].client_status == status.CLIENT_UNKNOWN


def test_a_member_that_failed_is_replaced_although_a_canary_disconnects_in_that_moment() -> None:
    cluster, job, canary = _canarying(2, disconnect=_disconnecting())
    (failed,) = [alloc for alloc in cluster.live(job) if alloc.name != canary.name]
    cluster.end(failed, status.CLIENT_FAILED)
    cluster.now = UnixNano(cluster.now + seconds(3600))
    cluster.do(c.SetNodeStatus(node_id=canary.node_id, status="disconnected", updated_at=1))
    cluster.evaluate(job)
    assert _reachable(cluster, job) == [("web.web[0]", 0, False), ("web.web[0]", 1, True), ("web.web[1]", 0, False)]
    assert cluster.state.allocs[failed.id].next_allocation


@pytest.mark.parametrize(("drains", "placed"), [(False, 0), (True, 1)])
def test_a_canary_of_a_gang_that_is_gone_is_replaced_together_with_those_that_have_failed(
    drains: bool, placed: int
) -> None:
    """A drain moves a canary also while others are missing, as it moves members."""
    update = factories.update_strategy(canary=3, max_parallel=1)
    later = ReschedulePolicy(delay=seconds(30), delay_function="constant", unlimited=True)
    group: dict[str, Any] = {"update": update, "gang": Gang(), "reschedule_policy": later}
    cluster = PlannedCluster()
    cluster.register(old := _service(3, **group))
    cluster.settle(old)
    cluster.register(new := _service(3, cpu=200, **group))
    cluster.settle(new)
    canaries = [alloc for alloc in cluster.live(new) if alloc.job is not None and alloc.job.version == 1]
    assert len(canaries) == 3
    for alloc in canaries[1:]:
        cluster.end(alloc, status.CLIENT_FAILED)
    failed = {alloc.id: DesiredTransition(reschedule=True) for alloc in canaries[1:]}
    cluster.do(c.SetDesiredTransitions(transitions=failed, now=cluster.now))
    if drains:
        moving = {canaries[0].id: DesiredTransition(migrate=True)}
        cluster.do(c.SetDesiredTransitions(transitions=moving, now=cluster.now))
    else:
        cluster.do(c.SetNodeStatus(node_id=canaries[0].node_id, status="down", updated_at=1))
    before = set(cluster.state.allocs.keys())

    cluster.evaluate(new)
    added = [alloc for alloc in cluster.state.allocs.values() if alloc.id not in before]

    assert sum(alloc.job is not None and alloc.job.version == 1 for alloc in added) == placed
    cluster.now = UnixNano(cluster.now + seconds(60))
    cluster.settle(new)
    assert sum(alloc.job is not None and alloc.job.version == 1 for alloc in cluster.live(new)) == 3


def test_a_stray_canary_that_has_ended_while_it_was_to_migrate_brings_no_member_of_a_gang() -> None:
    cluster, job, _ = _canarying(1, gang=Gang(min=1))
    larger = replace(job.task_groups[0], count=4, gang=Gang(min=3))
    cluster.register(job := replace(job, task_groups=(larger,), meta={"version": "3"}))
    cluster.settle(job)
    canaries = [alloc for alloc in cluster.live(job) if alloc.job is not None and alloc.job.version == 2]
    assert len(canaries) == 3 and all(alloc.deployment_status is not None for alloc in canaries)
    for alloc in cluster.live(job):
        if alloc not in canaries:
            cluster.end(alloc, status.CLIENT_FAILED)
    moved, *others = canaries
    cluster.do(c.SetDesiredTransitions(transitions={moved.id: DesiredTransition(migrate=True)}, now=cluster.now))
    cluster.end(moved, status.CLIENT_COMPLETE)
    failure = DeploymentUpdate(deployment_id=moved.deployment_id, status=status.DEPLOYMENT_FAILED)
    cluster.do(c.SetDeploymentStatus(update=failure))
    cluster.evaluate(job)  # applies its plan, which `apply` would refuse with one member of three
    assert not cluster.live(job)
    assert {cluster.state.allocs[alloc.id].desired_status for alloc in others} == {status.DESIRED_STOP}
