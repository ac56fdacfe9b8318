"""The scheduler reaches what the job asks for and is idle then; updates never take more than they may."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import DesiredTransition
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job, PeriodicConfig, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.resources import Resources
from yurt.structs.service import Service
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import ROUNDS, PlannedCluster
from yurt.testing.nightly import cases

CASES = cases(500)


def _service(count: int, cpu: int = 100, **changes: Any) -> Job:
    task = factories.task(resources=replace(factories.task().resources, cpu=cpu))
    return factories.job(task_groups=(factories.group(count=count, tasks=(task,), **changes),))


def _wanted(job: Job) -> list[str]:
    return sorted(f"{job.id}.{g.name}[{index}]" for g in job.task_groups for index in range(g.count))


@settings(max_examples=CASES, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_a_job_reaches_its_count_and_is_idle_then(counts: list[int]) -> None:
    cluster = PlannedCluster()
    for count in counts:
        job = _service(count)
        cluster.register(job)
        cluster.settle(job)
        assert cluster.names(job) == _wanted(job)


@settings(max_examples=CASES, deadline=None)
@given(st.integers(2, 8), st.integers(1, 4))
def test_an_update_never_takes_more_than_max_parallel(count: int, parallel: int) -> None:
    cluster = PlannedCluster()
    update = factories.update_strategy(max_parallel=parallel)
    job = _service(count, update=update)
    cluster.register(job)
    cluster.settle(job)
    cluster.register(changed := _service(count, cpu=150, update=update))
    for _ in range(ROUNDS):
        before = {alloc.id for alloc in cluster.live(job)}
        is_changed = cluster.evaluate(changed)
        stopped = before - {alloc.id for alloc in cluster.live(job)}
        assert len(stopped) <= parallel
        cluster.clients_act(changed)
        if not is_changed:
            break
    assert cluster.names(changed) == _wanted(changed)
    latest = cluster.state.latest_deployment("default", job.id)
    assert latest is not None and latest.status == status.DEPLOYMENT_SUCCESSFUL
    assert {alloc.job.version for alloc in cluster.live(job) if alloc.job is not None} == {1}


def test_an_unhealthy_allocation_stops_the_update() -> None:
    cluster = PlannedCluster()
    job = _service(4)
    cluster.register(job)
    cluster.settle(job)
    cluster.register(changed := _service(4, cpu=150))
    cluster.evaluate(changed)
    cluster.clients_act(changed, healthy=False)
    assert not cluster.evaluate(changed)
    versions = sorted(alloc.job.version for alloc in cluster.live(job) if alloc.job is not None)
    assert versions == [0, 0, 0, 1]


def test_canaries_come_first_and_the_rest_follows_their_promotion() -> None:
    cluster = PlannedCluster()
    job = _service(3)
    cluster.register(job)
    cluster.settle(job)
    cluster.register(changed := _service(3, cpu=150, update=factories.update_strategy(canary=1, max_parallel=2)))
    cluster.settle(changed)
    versions = sorted(alloc.job.version for alloc in cluster.live(job) if alloc.job is not None)
    assert versions == [0, 0, 0, 1]
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.task_groups["web"].desired_canaries == 1
    cluster.do(c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now))
    cluster.settle(changed)
    assert cluster.names(changed) == _wanted(changed)
    assert {alloc.job.version for alloc in cluster.live(job) if alloc.job is not None} == {1}
    latest = cluster.state.latest_deployment("default", job.id)
    assert latest is not None and latest.status == status.DEPLOYMENT_SUCCESSFUL


def test_a_change_of_the_count_updates_in_place_and_keeps_what_runs() -> None:
    cluster = PlannedCluster()
    job = _service(4)
    cluster.register(job)
    cluster.settle(job)
    before = {alloc.id: alloc.node_id for alloc in cluster.live(job)}
    cluster.register(more := _service(6))
    cluster.settle(more)
    after = {alloc.id: alloc.node_id for alloc in cluster.live(more)}
    assert before.items() <= after.items()


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 2**32))
def test_a_completed_batch_allocation_is_never_run_again(seed: int) -> None:
    random, cluster = Random(seed), PlannedCluster(nodes=4)
    job = factories.job(type=status.JOB_BATCH, task_groups=(factories.group(count=3, update=None),))
    cluster.register(job)
    cluster.settle(job)
    done = set()
    for _ in range(12):
        live = cluster.live(job)
        match random.randrange(4):
            case 0 if live:
                alloc = random.choice(live)
                cluster.end(alloc, status.CLIENT_COMPLETE)
                done.add(alloc.name)
            case 1:
                node = random.choice(sorted(cluster.state.nodes.keys()))
                command = c.SetNodeStatus(node_id=node, status=random.choice(("down", "ready")), updated_at=1)
                cluster.do(command)
            case 2 if live:
                cluster.end(random.choice(live), status.CLIENT_FAILED)
            case _:
                cluster.now = UnixNano(cluster.now + seconds(30))
        cluster.settle(job)
        assert not done.intersection(cluster.names(job))
        names = cluster.names(job)
        assert len(set(names)) == len(names)


def test_a_lost_node_has_its_allocations_replaced_elsewhere() -> None:
    cluster = PlannedCluster(nodes=3)
    job = _service(3)
    cluster.register(job)
    cluster.settle(job)
    gone = cluster.live(job)[0].node_id
    cluster.do(c.SetNodeStatus(node_id=gone, status="down", updated_at=1))
    cluster.settle(job)
    assert cluster.names(job) == _wanted(job)
    assert gone not in {alloc.node_id for alloc in cluster.live(job)}
    assert {alloc.client_status for alloc in cluster.state.allocs_of_node(gone)} == {status.CLIENT_LOST}


def test_a_failed_allocation_waits_for_its_follow_up_and_moves_away_then() -> None:
    cluster = PlannedCluster(nodes=3)
    job = _service(1, update=None)
    cluster.register(job)
    cluster.settle(job)
    failed = cluster.live(job)[0]
    cluster.end(failed, status.CLIENT_FAILED)
    cluster.evaluate(job)
    (followup,) = cluster.followups
    assert followup.wait_until - cluster.now == seconds(29) and followup.triggered_by == "alloc-failure"
    cluster.now = UnixNano(followup.wait_until)
    cluster.evaluate(job, trigger="alloc-failure", eval_id=followup.id)
    (replacement,) = cluster.live(job)
    assert replacement.previous_allocation == failed.id and replacement.node_id != failed.node_id
    assert replacement.reschedule_tracker is not None and len(replacement.reschedule_tracker.events) == 1
    assert not cluster.evaluate(job)


def test_a_disconnected_allocation_becomes_unknown_is_replaced_and_one_of_both_stays() -> None:
    cluster = PlannedCluster(nodes=3)
    job = _service(
        1, update=None, disconnect=DisconnectStrategy(lost_after=seconds(600), replace=True, reconcile="keep_original")
    )
    cluster.register(job)
    cluster.settle(job)
    (original,) = cluster.live(job)
    cluster.do(c.SetNodeStatus(node_id=original.node_id, status="disconnected", updated_at=1))
    cluster.evaluate(job)
    assert [follow.triggered_by for follow in cluster.followups] == ["max-disconnect-timeout"]
    cluster.clients_act(job)
    assert sorted(alloc.client_status for alloc in cluster.live(job)) == ["running", "unknown"]
    assert not cluster.evaluate(job)
    for new in ("initializing", "ready"):
        cluster.do(c.SetNodeStatus(node_id=original.node_id, status=new, updated_at=1))
        if new == "initializing":
            update = c.AllocUpdate(id=original.id, node_id=original.node_id, client_status="running")
            cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now))
    cluster.settle(job)
    assert [alloc.id for alloc in cluster.live(job)] == [original.id]


@settings(max_examples=CASES, deadline=None)
@given(st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_an_update_replaces_exactly_when_the_group_itself_changes(
    cpu: bool, env: bool, services: bool, restart: bool
) -> None:
    cluster = PlannedCluster()
    ports = (NetworkResource(mode="host", dynamic_ports=(Port(label="http"),)),)
    job = _service(1, networks=ports)
    cluster.register(job)
    cluster.settle(job)
    (before,) = cluster.live(job)
    task = job.task_groups[0].tasks[0]
    task = replace(
        task,
        resources=replace(task.resources, cpu=120 if cpu else 100),
        env={"A": "b"} if env else {},
        services=(Service(name="web"),) if services else (),
        kill_timeout=seconds(9 if restart else 5),
    )
    changed = replace(job, task_groups=(replace(job.task_groups[0], tasks=(task,)),))
    cluster.register(changed)
    cluster.settle(changed)
    (after,) = cluster.live(changed)
    assert (after.id != before.id) == (cpu or env)
    if after.id == before.id:
        assert after.allocated_resources == before.allocated_resources
        assert after.job is not None and after.job.version == (1 if services or restart else 0)


def test_a_job_that_only_launches_others_is_never_placed_itself() -> None:
    cluster = PlannedCluster()
    job = replace(_service(2), periodic=PeriodicConfig(spec="@daily"))
    cluster.register(job)
    assert not cluster.evaluate(job)


def test_a_system_job_runs_once_on_every_ready_node() -> None:
    cluster = PlannedCluster(nodes=5)
    job = factories.job(type=status.JOB_SYSTEM)
    cluster.register(job)
    cluster.settle(job)
    assert len({alloc.node_id for alloc in cluster.live(job)}) == len(cluster.live(job)) == 5
    cluster.do(c.RegisterNode(node=factories.node(factories.number_id(9, kind=1))))
    cluster.settle(job)
    assert len(cluster.live(job)) == 6


@pytest.mark.parametrize(
    ("kind", "is_draining", "is_renewed"),
    [(status.JOB_SYSTEM, False, True), (status.JOB_SYSTEM, True, False), (status.JOB_SYSBATCH, False, False)],
)
def test_a_stopped_allocation_of_a_system_job_is_replaced_on_a_ready_node(
    kind: str, is_draining: bool, is_renewed: bool
) -> None:
    cluster = PlannedCluster(nodes=2)
    job = factories.job(type=kind)
    cluster.register(job)
    cluster.settle(job)
    stopped, other = cluster.live(job)
    if is_draining:
        cluster.do(c.SetNodeEligibility(node_id=stopped.node_id, eligibility=status.INELIGIBLE))
    cluster.do(c.SetDesiredTransitions(transitions={stopped.id: DesiredTransition(migrate=True)}))
    assert cluster.evaluate(job)
    cluster.clients_act(job)
    assert not cluster.evaluate(job), "one evaluation settles it"
    after = cluster.state.allocs[stopped.id]
    reason = "alloc is being migrated" if is_renewed else "alloc not needed as node is tainted"
    assert (after.desired_status, after.desired_description) == (status.DESIRED_STOP, reason)
    new = [alloc for alloc in cluster.live(job) if alloc.id != other.id]
    assert [(alloc.node_id, alloc.previous_allocation) for alloc in new] == (
        [(stopped.node_id, stopped.id)] if is_renewed else []
    )


@pytest.mark.parametrize("kind", [status.JOB_SYSTEM, status.JOB_SYSBATCH])
def test_a_system_job_stays_on_a_node_that_no_longer_suits_it_until_there_is_a_new_version(kind: str) -> None:
    cluster = PlannedCluster(nodes=0)
    role = Constraint(l_target="${meta.role}", operand="=", r_target="edge")
    job = factories.job(type=kind, constraints=(role,))
    suits = factories.node(factories.number_id(1, kind=1), meta={"role": "edge"})
    cluster.do(c.RegisterNode(node=suits))
    cluster.register(job)
    cluster.settle(job)
    for changed in (replace(suits, drivers={}), replace(suits, meta={})):
        cluster.do(c.RegisterNode(node=changed))
        assert not cluster.evaluate(job) and len(cluster.live(job)) == 1
    cluster.register(replace(job, priority=60))
    assert cluster.evaluate(job) and not cluster.live(job)


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_one_group_of_a_system_job_gives_up_another_may_take_at_once(is_gone: bool) -> None:
    def group(name: str, cpu: int, **changes: Any) -> TaskGroup:
        task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
        return factories.group(name, tasks=(task,), update=None, migrate=None, reschedule_policy=None, **changes)

    cluster = PlannedCluster(nodes=1)
    other = factories.job("other", priority=1, task_groups=(group("other", 900),))
    old = factories.job(type=status.JOB_SYSTEM, task_groups=(group("large", 3000),))
    for job in (other, old):
        cluster.register(job)
        cluster.settle(job)
    away = (Constraint(l_target="${node.class}", operand="=", r_target="other"),) if is_gone else ()
    cluster.register(replace(old, task_groups=(group("small", 1000), group("large", 2000, constraints=away))))
    assert cluster.evaluate(old)
    assert not cluster.blocked and len(cluster.live(other)) == 1
    assert {alloc.task_group for alloc in cluster.live(old)} == ({"small"} if is_gone else {"small", "large"})


def test_what_finds_no_room_waits_in_a_blocked_evaluation_that_says_why() -> None:
    cluster = PlannedCluster(nodes=2)
    job = _service(3, cpu=3000)
    cluster.register(job)
    cluster.evaluate(job)
    (blocked,) = cluster.blocked
    metric = blocked.failed_tg_allocs["web"]
    assert len(cluster.live(job)) == 2
    assert metric.nodes_evaluated == 2 and metric.nodes_exhausted == 2 and metric.dimension_exhausted == {"cpu": 2}
    assert list(blocked.class_eligibility.values()) == [True]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("way", ["down", "drain", "fail"])
def test_while_canaries_try_a_version_what_is_lost_is_replaced_by_the_old_one(way: str, index: int) -> None:
    cluster = PlannedCluster()
    update = replace(factories.update_strategy(), canary=1, max_parallel=1)
    old = _service(3, update=update)
    cluster.register(old)
    cluster.settle(old)
    new = _service(3, cpu=200, update=update)
    cluster.register(new)
    cluster.settle(new)
    (canary,) = [alloc for alloc in cluster.live(new) if alloc.job is not None and alloc.job.version == 1]
    gone = next(a for a in cluster.live(new) if a.id != canary.id and a.name.endswith(f"[{index}]"))
    if way == "down":
        cluster.do(c.SetNodeStatus(node_id=gone.node_id, status="down", updated_at=1))
    elif way == "drain":
        moving = DesiredTransition(migrate=True)
        cluster.do(c.SetDesiredTransitions(transitions={gone.id: moving}, now=cluster.now))
    else:
        cluster.end(gone, status.CLIENT_FAILED)
        cluster.evaluate(new)
        cluster.now = UnixNano(cluster.now + seconds(3600))
    cluster.settle(new)
    versions = sorted(alloc.job.version for alloc in cluster.live(new) if alloc.job is not None)
    assert versions == [0, 0, 0, 1] and gone.id not in {alloc.id for alloc in cluster.live(new)}
    deployment = cluster.state.latest_deployment("default", new.id)
    assert deployment is not None
    cluster.do(c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now))
    cluster.settle(new)
    assert {alloc.job.version for alloc in cluster.live(new) if alloc.job is not None} == {1}
    assert cluster.names(new) == _wanted(new)


def test_a_deployment_does_not_succeed_while_one_of_its_own_that_was_well_waits_for_its_replacement() -> None:
    cluster = PlannedCluster()
    job = _service(2, update=factories.update_strategy(max_parallel=2))
    cluster.register(job)
    cluster.evaluate(job)
    cluster.clients_act(job)
    failed = cluster.live(job)[0]
    assert failed.deployment_status is not None and failed.deployment_status.healthy
    cluster.end(failed, status.CLIENT_FAILED)
    cluster.evaluate(job)
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.status == "running"
    marked = DesiredTransition(reschedule=True)
    cluster.do(c.SetDesiredTransitions(transitions={failed.id: marked}, now=cluster.now))
    cluster.now = UnixNano(cluster.now + seconds(60))
    cluster.settle(job)
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.status == "successful" and len(cluster.live(job)) == 2


def _told_deployment(cluster: PlannedCluster, job: Job) -> str:
    evaluation = factories.evaluation(job)
    made = scheduler.attempt(cluster.state, evaluation, now=cluster.now, seed=1)
    return made.outcome.evaluation.deployment_id


def test_an_evaluation_names_the_deployment_of_its_version_also_one_that_has_ended() -> None:
    cluster = PlannedCluster()
    update = factories.update_strategy(max_parallel=2)
    cluster.register(job := _service(2, update=update))
    cluster.settle(job)
    deployment = cluster.state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.status == "successful"
    assert _told_deployment(cluster, job) == deployment.id
    cluster.register(smaller := _service(0, update=update))
    assert _told_deployment(cluster, smaller) == ""
    cluster.register(replace(job, stop=True))
    assert _told_deployment(cluster, job) == ""
