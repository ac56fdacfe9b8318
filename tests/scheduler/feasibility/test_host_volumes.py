"""Dynamic host volumes: states and claims in the state machine, and where the scheduler lets allocations go."""

from __future__ import annotations

from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.fsm.snapshot import decode, digest, encode
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.state.host_volumes import users
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace, PreemptionConfig, SchedulerConfiguration
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import HostVolumeInfo, Node
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.resources import Resources
from yurt.structs.rules import (
    CHANGED_VOLUME_RULES,
    HOST_VOLUME_RULES,
    LEAVING_WRITER_RULES,
    RULES_VERSION,
    SINGLE_WRITER_RULES,
)
from yurt.structs.volumes.host import HostVolume, HostVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories

TINY = Resources(cpu=10, memory_mb=10)


def volume_id(number: int) -> str:
    return factories.number_id(number, kind=5)


def node(number: int, *, offers: bool = True) -> Node:
    offered = {"data": HostVolumeInfo(path="/d", id=volume_id(number))} if offers else {}
    return factories.node(factories.number_id(number, kind=1), host_volumes=offered)


def volume(number: int, mode: str = "single-node-writer", **changes: Any) -> HostVolume:
    capability = HostVolumeCapability(access_mode=mode, attachment_mode="file-system")
    known = {"id": volume_id(number), "name": "data", "node_id": factories.number_id(number, kind=1)}
    return HostVolume(**{**known, "plugin_id": "mkdir", "requested_capabilities": (capability,), **changes})


def job_with(name: str = "web", **request: Any) -> Job:
    asked = VolumeRequest(**{"name": "data", "type": "host", "source": "data", **request})
    return factories.job(name, task_groups=(factories.group(count=1, volumes={"data": asked}, update=None),))


def ruled(command: c.AnyCommand, rules_version: int = RULES_VERSION) -> c.AnyCommand:
    """The command as the log writer stores it."""
    return replace(command, rules_version=rules_version)


def after(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, command, index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def cluster(*volumes: HostVolume, job: Job) -> Snapshot:
    nodes = [c.RegisterNode(node=node(number)) for number in (1, 2)]
    puts = [c.PutHostVolume(volume=each) for each in volumes]
    return after(Snapshot.empty(), *nodes, *puts, c.RegisterJob(job=job))


def attempt(state: Snapshot, job: Job) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=1)


def reasons(made: Attempt) -> dict[str, int]:
    (metric,) = made.outcome.evaluation.failed_tg_allocs.values()
    return dict(metric.constraint_filtered)


def test_the_state_follows_the_node_and_survives_a_snapshot() -> None:
    state = after(Snapshot.empty(), c.RegisterNode(node=node(1, offers=False)), c.PutHostVolume(volume=volume(1)))
    assert state.host_volumes[volume_id(1)].state == "pending"
    state = after(state, c.RegisterNode(node=node(1)))
    assert state.host_volumes[volume_id(1)].state == "ready"
    assert digest(decode(encode(state))) == digest(state)
    down = c.SetNodeStatus(node_id=node(1).id, status="down", updated_at=1)
    state = after(state, down)
    assert state.host_volumes[volume_id(1)].state == "unavailable"
    state = after(state, c.DeleteHostVolume(namespace="default", id=volume_id(1)))
    assert not len(state.host_volumes)


def test_a_second_volume_of_the_name_on_a_node_is_refused() -> None:
    state = cluster(volume(1), job=job_with())
    other = c.PutHostVolume(volume=volume(1, id=volume_id(9)))
    assert isinstance(apply(state, other, index=state.index + 1).result, c.Rejected)


@pytest.mark.parametrize(
    ("mode", "request_", "reason"),
    [
        ("single-node-writer", {}, ""),
        ("single-node-multi-writer", {"access_mode": "single-node-multi-writer"}, ""),
        ("single-node-reader-only", {"read_only": True}, ""),
        ("single-node-reader-only", {}, 'host volume "data" does not offer a writing mode'),
        (
            "single-node-writer",
            {"access_mode": "single-node-multi-writer"},
            'host volume "data" does not offer single-node-multi-writer',
        ),
    ],
)
def test_the_capabilities_of_the_volume_decide(mode: str, request_: dict[str, Any], reason: str) -> None:
    job = job_with(**request_)
    made = attempt(cluster(volume(1, mode), volume(2, mode), job=job), job)
    assert reason == next(iter(reasons(made)), "") if reason else len(made.plan.placements) == 1


def test_a_volume_of_another_namespace_is_not_given() -> None:
    job = job_with()
    state = after(Snapshot.empty(), c.UpsertNamespaces(namespaces=(Namespace(name="ops"),)))
    state = after(state, c.RegisterNode(node=node(1)), c.PutHostVolume(volume=volume(1, namespace="ops")))
    made = attempt(after(state, c.RegisterJob(job=job)), job)
    assert reasons(made) == {'host volume "data" belongs to another namespace': 1}


def test_one_writer_keeps_another_out() -> None:
    first, second = job_with("first"), job_with("second")
    mode = "single-node-single-writer"
    state = after(cluster(volume(1, mode), volume(2, mode), job=first), c.RegisterJob(job=second))
    for job in (first, second):
        state = after(state, c.ApplyPlan(plan=attempt(state, job).plan))
    assert sorted(alloc.node_id for alloc in state.allocs.values()) == sorted([node(1).id, node(2).id])
    third = job_with("third")
    state = after(state, c.RegisterJob(job=third))
    assert 'host volume "data" has its single writer' in reasons(attempt(state, third))


def test_two_plans_made_side_by_side_do_not_both_get_the_writer() -> None:
    first, second = job_with("first"), job_with("second")
    state = after(cluster(volume(1, "single-node-single-writer"), job=first), c.RegisterJob(job=second))
    state = after(state, c.SetNodeEligibility(node_id=node(2).id, eligibility="ineligible"))
    plans = [attempt(state, job).plan for job in (first, second)]
    state = after(state, c.ApplyPlan(plan=plans[0]))
    late = apply(state, c.ApplyPlan(plan=plans[1]), index=state.index + 1)
    assert isinstance(late.result, c.Rejected) and late.result.message == 'host volume "data" has its single writer'


OPS = c.UpsertNamespaces(namespaces=(Namespace(name="ops"),))
REPLACED: dict[str, tuple[c.AnyCommand, ...]] = {
    'host volume "data" belongs to another namespace': (
        c.DeleteHostVolume(namespace="default", id=volume_id(1)), OPS,
        c.PutHostVolume(volume=volume(1, id=volume_id(9), namespace="ops")),
        c.RegisterNode(node=replace(node(1), host_volumes={"data": HostVolumeInfo(path="/d", id=volume_id(9))})),
    ),
    'the node has no host volume "data"': (c.DeleteHostVolume(namespace="default", id=volume_id(1)),),
    'host volume "data" has no record in the cluster': (
        c.DeleteHostVolume(namespace="default", id=volume_id(1)), c.RegisterNode(node=node(1)),
    ),
    'host volume "data" is being deleted': (
        c.PutHostVolume(volume=volume(1, state="unavailable"), keeps_state=True),  # somebody deletes it just now
    ),
    'host volume "data" is read-only': (
        c.RegisterNode(node=replace(node(1), host_volumes={"data": HostVolumeInfo(path="/d", read_only=True)})),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REPLACED)
def test_a_plan_gets_no_volume_that_was_withdrawn_after_it_was_made(reason: str) -> None:
    """Two requests at once: one places a job that mounts a volume, the other takes the volume away."""
    job = job_with()
    state = after(Snapshot.empty(), c.RegisterNode(node=node(1)), c.PutHostVolume(volume=volume(1)))
    state = after(state, c.RegisterJob(job=job))
    plan, checked_at = attempt(state, job).plan, state.index
    assert scheduler.check_plan(state, plan).is_full
    state = after(state, *map(ruled, REPLACED[reason]))
    assert scheduler.check_plan(state, plan).rejected_nodes == {node(1).id: reason}
    late = apply(state, ruled(c.ApplyPlan(plan=plan, checked_at=checked_at)), index=state.index + 1)
    assert isinstance(late.result, c.Rejected)
    assert (late.result.kind, late.result.message) == ("stale", f'node "{node(1).id}": {reason}')


def test_a_deletion_that_comes_second_finds_the_volume_in_use() -> None:
    job = job_with()
    state = after(Snapshot.empty(), c.RegisterNode(node=node(1)), c.PutHostVolume(volume=volume(1)))
    state = after(state, c.RegisterJob(job=job))
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, job).plan, checked_at=state.index)))
    assert [alloc.job_id for alloc, _ in users(state, state.host_volumes[volume_id(1)])] == [job.id]


def test_a_large_plan_loses_the_nodes_alone_whose_volume_was_withdrawn() -> None:
    """So many placements are told apart by sums first, which know nothing of volumes."""
    asked = job_with().task_groups[0].volumes
    group = factories.group(count=40, volumes=asked, update=None, tasks=(factories.task(resources=TINY),))
    job = factories.job(task_groups=(group,))
    multi = "single-node-multi-writer"
    state = cluster(volume(1, multi), volume(2, multi), job=job)
    placements = tuple(factories.placement(job, on=node(1 + index % 2), index=index) for index in range(40))
    plan = Plan(eval_id="e", namespace="default", job_id=job.id, now=factories.NOW, placements=placements)
    assert scheduler.check_plan(state, plan).is_full
    state = after(state, ruled(c.DeleteHostVolume(namespace="default", id=volume_id(1))))
    result = scheduler.check_plan(state, plan)
    assert result.rejected_nodes == {node(1).id: 'the node has no host volume "data"'}
    assert {each.node_id for each in result.accepted.placements} == {node(2).id}


def test_a_plan_of_an_earlier_version_is_applied_as_it_was() -> None:
    job = job_with()
    state = after(Snapshot.empty(), c.RegisterNode(node=node(1)), c.PutHostVolume(volume=volume(1)))
    state = after(state, c.RegisterJob(job=job))
    plan = attempt(state, job).plan
    state = after(state, c.DeleteHostVolume(namespace="default", id=volume_id(1)))
    stored = ruled(c.ApplyPlan(plan=plan), HOST_VOLUME_RULES)
    assert len(after(state, stored).allocs) == 1


def test_a_sticky_allocation_goes_back_to_its_volume_or_waits() -> None:
    job = job_with(sticky=True)
    state = cluster(volume(1), volume(2), job=job)
    state = after(state, c.ApplyPlan(plan=attempt(state, job).plan))
    (claim,), (alloc,) = state.host_volume_claims.values(), state.allocs.values()
    assert (claim.alloc_id, claim.volume_id) == (alloc.id, volume_id(int(alloc.node_id[-1])))
    told = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
    ended = c.UpdateAllocsFromClient(updates=(told,))
    away = c.SetNodeEligibility(node_id=alloc.node_id, eligibility="ineligible")
    state = after(state, ended, away)
    waiting = attempt(state, job)
    assert not waiting.plan.placements
    back = after(state, c.SetNodeEligibility(node_id=alloc.node_id, eligibility="eligible"))
    assert [each.node_id for each in attempt(back, job).plan.placements] == [alloc.node_id]
    free = after(state, c.DeleteHostVolumeClaim(id=claim.id))
    assert [each.node_id == alloc.node_id for each in attempt(free, job).plan.placements] == [False]


def test_a_node_that_offers_a_dynamic_volume_without_a_record_takes_no_allocation() -> None:
    """Without the record nobody knows to which namespace the volume belongs."""
    job = job_with()
    made = attempt(cluster(job=job), job)
    assert reasons(made) == {'host volume "data" has no record in the cluster': 2}
    (placement,) = attempt(cluster(volume(1), job=job), job).plan.placements
    assert placement.node_id == node(1).id


def second_group(job: Job) -> Job:
    """The job with a second group that asks for the same volume."""
    return replace(job, task_groups=(*job.task_groups, replace(job.task_groups[0], name="second")))


SINGLE, MULTI = "single-node-single-writer", "single-node-multi-writer"
BOTH = tuple(HostVolumeCapability(access_mode=mode, attachment_mode="file-system") for mode in (SINGLE, MULTI))


@pytest.mark.parametrize("modes", [(SINGLE, MULTI), (MULTI, SINGLE)])
def test_a_single_writer_is_alone_whoever_came_first(modes: tuple[str, str]) -> None:
    first, second = (job_with(mode, access_mode=mode) for mode in modes)
    state = cluster(volume(1, requested_capabilities=BOTH), job=first)
    state = after(state, c.RegisterJob(job=second), c.SetNodeEligibility(node_id=node(2).id, eligibility="ineligible"))
    late = attempt(state, second).plan
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, first).plan)))
    assert 'host volume "data" has its single writer' in reasons(attempt(state, second))
    refused = apply(state, ruled(c.ApplyPlan(plan=late)), index=state.index + 1).result
    assert isinstance(refused, c.Rejected) and refused.message == 'host volume "data" has its single writer'


def refuses_second_writer(state: Snapshot, job: Job, volume_name: str) -> None:
    """The scheduler places one of the job's two groups, and `apply` refuses a plan with both."""
    made = attempt(state, job)
    assert len(made.plan.placements) == 1
    (placed,) = made.plan.placements
    other = replace(placed, id="other", task_group="second", name="web.second[0]")
    both = replace(made.plan, placements=(placed, other))
    refused = apply(state, ruled(c.ApplyPlan(plan=both)), index=state.index + 1).result
    assert isinstance(refused, c.Rejected)
    assert refused.message == f'host volume "{volume_name}" has its single writer'


@pytest.mark.parametrize("kind", ["service", "system"])
def test_two_groups_of_a_job_do_not_both_get_the_writer(kind: str) -> None:
    job = replace(second_group(job_with()), type=kind)
    state = cluster(volume(1, SINGLE), job=job)
    refuses_second_writer(state, job, "data")


def test_a_system_job_whose_volume_has_a_writer_waits_for_its_node() -> None:
    first, system = job_with("first"), replace(job_with("everywhere"), type="system")
    state = after(cluster(volume(1, SINGLE), job=first), c.RegisterJob(job=system))
    state = after(state, c.ApplyPlan(plan=attempt(state, first).plan))
    (waiting,) = attempt(state, system).outcome.created
    assert (waiting.status, waiting.node_id) == ("blocked", node(1).id)


def test_an_outdated_system_allocation_ends_where_its_new_version_has_no_volume() -> None:
    plain = factories.job("everywhere", type="system", task_groups=(factories.group(count=1, update=None),))
    state = cluster(volume(1, name="data[0]"), job=plain)
    offers = replace(node(1), host_volumes={"data[0]": HostVolumeInfo(path="/d", id=volume_id(1))})
    state = after(state, c.RegisterNode(node=offers))
    state = after(state, c.ApplyPlan(plan=attempt(state, plain).plan))
    asking = replace(job_with("everywhere", per_alloc=True), type="system")
    state = after(state, c.RegisterJob(job=asking))
    plan = attempt(state, state.jobs[asking.key]).plan
    assert [each.node_id for each in plan.placements] == [node(1).id]
    assert len(plan.stops) == 2


def test_two_groups_that_preempt_others_do_not_both_get_the_writer() -> None:
    """The node is full, so that each of both ends an allocation of lower priority."""
    large = Resources(cpu=10, memory_mb=3500)
    tasks = (factories.task(resources=large),)
    old = factories.job("old", priority=10, task_groups=(factories.group(count=2, update=None, tasks=tasks),))
    asking = job_with()
    asking = replace(asking, priority=90, task_groups=(replace(asking.task_groups[0], tasks=tasks),))
    job = second_group(asking)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = after(cluster(volume(1, SINGLE), job=old), c.SetSchedulerConfiguration(configuration=config))
    state = after(state, c.SetNodeEligibility(node_id=node(2).id, eligibility="ineligible"))
    state = after(state, c.ApplyPlan(plan=attempt(state, old).plan), c.RegisterJob(job=job))
    made = attempt(state, job)
    assert len(made.plan.preemptions) == len(made.plan.placements) == 1
    assert 'host volume "data" has its single writer' in reasons(made)


def everywhere(**changes: Any) -> Job:
    """A system job that asks for the volume."""
    return replace(job_with("everywhere"), type="system", **changes)


def updated(state: Snapshot, job: Job) -> Plan:
    """The plan of the job's next version, whose tasks are others."""
    group = replace(job.task_groups[0], tasks=(factories.task(env={"VERSION": "2"}),))
    state = after(state, c.RegisterJob(job=replace(job, task_groups=(group,))))
    return attempt(state, state.jobs[job.key]).plan


@pytest.mark.parametrize("name", ["everywhere", "Everywhere at once"])
def test_a_system_allocation_is_no_other_writer_for_its_successor(name: str) -> None:
    """Allocations of a system job have its name, which may differ from its id."""
    job = everywhere(name=name)
    state = cluster(volume(1, SINGLE), volume(2, SINGLE), job=job)
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, job).plan)))
    plan = updated(state, job)
    assert len(plan.placements) == len(plan.stops) == 2


def test_each_node_of_a_system_job_has_a_sticky_volume_of_its_own() -> None:
    sticky = job_with("everywhere", sticky=True)
    job = replace(sticky, type="system")
    state = cluster(volume(1), volume(2), job=job)
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, job).plan)))
    assert len(state.allocs) == 2
    assert len(updated(state, job).placements) == 2


@pytest.mark.parametrize("status", ["initializing", "disconnected"])
def test_an_outdated_system_allocation_stays_while_its_node_is_away(status: Any) -> None:
    """The volumes of such a node are unavailable; what becomes of the allocation is decided when it returns."""
    strategy = DisconnectStrategy(lost_after=seconds(600), replace=False)
    group = replace(job_with().task_groups[0], disconnect=strategy)
    job = everywhere(task_groups=(group,))
    state = cluster(volume(1), volume(2), job=job)
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, job).plan)))
    updates = [c.AllocUpdate(id=row.id, node_id=row.node_id, client_status="running") for row in state.allocs.values()]
    state = after(state, c.UpdateAllocsFromClient(updates=tuple(updates)))
    state = after(state, c.SetNodeStatus(node_id=node(1).id, status=status, updated_at=1))
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, job).plan)))
    assert [each.node_id for each in updated(state, job).stops] == [node(2).id]


@pytest.mark.parametrize(("is_reading", "is_refused"), [(True, False), (False, True)])
def test_a_member_of_another_version_counts_by_its_own_requests(is_reading: bool, is_refused: bool) -> None:
    """A canary of a version that reads the volume is placed together with a writer of the version before."""
    first, second = job_with(), job_with(read_only=is_reading)
    second = replace(second, priority=60)
    state = cluster(volume(1, SINGLE), job=first)
    plan = attempt(state, first).plan
    state = after(state, c.RegisterJob(job=second))
    canary = replace(plan.placements[0], id="canary", name="web.web[1]", job_version=1)
    both = replace(plan, placements=(*plan.placements, canary))
    result = apply(state, ruled(c.ApplyPlan(plan=both)), index=state.index + 1).result
    assert isinstance(result, c.Rejected) is is_refused


def test_an_allocation_that_asks_twice_for_a_volume_is_a_single_writer_if_one_request_is() -> None:
    alone, shared = (
        VolumeRequest(name=name, type="host", source="data", access_mode=mode)
        for name, mode in (("alone", SINGLE), ("shared", MULTI))
    )
    twice = factories.group("first", 1, volumes={"alone": alone, "shared": shared}, update=None)
    once = factories.group("second", 1, volumes={"shared": shared}, update=None)
    job = factories.job("web", task_groups=(twice, once))
    state = cluster(volume(1, requested_capabilities=BOTH), job=job)
    (placed,) = attempt(state, job).plan.placements
    other = replace(placed, id="other", task_group="second", name="web.second[0]")
    both = replace(attempt(state, job).plan, placements=(placed, other))
    assert isinstance(apply(state, ruled(c.ApplyPlan(plan=both)), index=state.index + 1).result, c.Rejected)


@pytest.mark.parametrize("rules", [SINGLE_WRITER_RULES - 1, SINGLE_WRITER_RULES])
def test_the_parts_of_a_staged_plan_do_not_both_get_the_writer(rules: int) -> None:
    job = second_group(job_with())
    state = cluster(volume(1, SINGLE), job=job)
    first = attempt(state, job).plan
    other = replace(first.placements[0], id="other", task_group="second", name="web.second[0]")
    second = replace(first, placements=(other,), deployment=None)
    state = after(state, c.StagePlan(plan_id="p", number=0, plan=first))
    command = ruled(c.ApplyPlan(plan=second, staged="p", parts=1), rules)
    result = apply(state, command, index=state.index + 1).result
    assert isinstance(result, c.Rejected) is (rules >= SINGLE_WRITER_RULES)


def per_alloc(name: str, mode: str, *, count: int = 1) -> Job:
    """A job whose allocations each want to write to a volume of their own."""
    job = job_with(name, per_alloc=True, access_mode=mode)
    return replace(job, task_groups=(replace(job.task_groups[0], count=count),))


def with_two_volumes(mode: str, *, is_dynamic: bool) -> Snapshot:
    """One node with the volumes `data[0]` and `data[1]`."""
    volumes = [volume(number, mode, name=f"data[{number}]", node_id=node(1).id) for number in range(2)]
    offered = {each.name: HostVolumeInfo(path="/d", id=each.id if is_dynamic else "") for each in volumes}
    puts = [c.PutHostVolume(volume=each) for each in volumes if is_dynamic]
    return after(Snapshot.empty(), c.RegisterNode(node=replace(node(1), host_volumes=offered)), *puts)


PER_ALLOC = [(mode, is_dynamic) for mode in ("single-node-writer", SINGLE) for is_dynamic in (True, False)]


@pytest.mark.parametrize(("mode", "is_dynamic"), PER_ALLOC)
def test_allocations_with_a_volume_each_share_a_node(mode: str, is_dynamic: bool) -> None:
    job = per_alloc("web", mode, count=2)
    state = after(with_two_volumes(mode, is_dynamic=is_dynamic), c.RegisterJob(job=job))
    plan = attempt(state, job).plan
    assert scheduler.check_plan(state, plan).is_full
    state = after(state, ruled(c.ApplyPlan(plan=plan, checked_at=state.index)))
    assert sorted(alloc.name for alloc in state.allocs.values()) == ["web.web[0]", "web.web[1]"]


@pytest.mark.parametrize(("mode", "is_dynamic"), PER_ALLOC)
def test_a_volume_of_one_allocation_has_one_writer_among_jobs(mode: str, is_dynamic: bool) -> None:
    first, second = per_alloc("first", mode), per_alloc("second", mode)
    state = after(with_two_volumes(mode, is_dynamic=is_dynamic), c.RegisterJob(job=first), c.RegisterJob(job=second))
    late = attempt(state, second).plan
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, first).plan, checked_at=state.index)))
    assert reasons(attempt(state, second)) == {'host volume "data[0]" has its single writer': 1}
    refused = apply(state, ruled(c.ApplyPlan(plan=late)), index=state.index + 1).result
    assert isinstance(refused, c.Rejected) and refused.message == 'host volume "data[0]" has its single writer'


@pytest.mark.parametrize(("mode", "is_dynamic"), PER_ALLOC)
def test_two_groups_do_not_both_write_to_the_volume_of_one_index(mode: str, is_dynamic: bool) -> None:
    job = second_group(per_alloc("web", mode))
    state = after(with_two_volumes(mode, is_dynamic=is_dynamic), c.RegisterJob(job=job))
    refuses_second_writer(state, job, "data[0]")


def with_canary(*, nodes: int) -> tuple[Snapshot, Job]:
    """A job that writes to the volume of one node, and is about to try a new version with a canary."""
    asked = job_with().task_groups[0].volumes
    update = replace(factories.update_strategy(), canary=1)
    first, second = (
        factories.job(task_groups=(
            factories.group(count=1, volumes=asked, update=update, tasks=(factories.task(env={"V": version}),)),
        ))
        for version in "01"
    )  # fmt: skip
    state = cluster(*(volume(number, SINGLE) for number in range(1, nodes + 1)), job=first)
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, first).plan, checked_at=state.index)))
    (alloc,) = state.allocs.values()
    well = c.SetDeploymentAllocHealth(deployment_id=alloc.deployment_id, healthy=(alloc.id,), now=factories.NOW)
    state = after(state, well)
    state = after(state, ruled(c.ApplyPlan(plan=attempt(state, first).plan)), c.RegisterJob(job=second))
    return state, state.jobs[second.key]


def test_a_canary_is_not_placed_where_its_predecessor_writes_alone() -> None:
    """Both run until the promotion."""
    state, job = with_canary(nodes=1)
    assert reasons(attempt(state, job))['host volume "data" has its single writer'] == 1
    state, job = with_canary(nodes=2)
    (alloc,) = state.allocs.values()
    (canary,) = attempt(state, job).plan.placements
    assert canary.deployment_status is not None and canary.deployment_status.canary
    assert canary.name == alloc.name and canary.node_id != alloc.node_id


@pytest.mark.parametrize("rules", [LEAVING_WRITER_RULES - 1, LEAVING_WRITER_RULES])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_plan_gets_no_second_writer_of_one_name_unless_it_stops_the_first(rules: int, is_stopped: bool) -> None:
    state, job = with_canary(nodes=2)
    (alloc,) = state.allocs.values()
    plan = attempt(state, job).plan
    (canary,) = plan.placements
    stops = (AllocStop(id=alloc.id, node_id=alloc.node_id),) if is_stopped else ()
    plan = replace(plan, placements=(replace(canary, id="canary", node_id=alloc.node_id),), stops=stops)
    result = apply(state, ruled(c.ApplyPlan(plan=plan), rules), index=state.index + 1).result
    assert isinstance(result, c.Rejected) is (rules >= LEAVING_WRITER_RULES and not is_stopped)


@pytest.mark.parametrize("rules", [LEAVING_WRITER_RULES - 1, LEAVING_WRITER_RULES])
def test_two_placements_of_one_name_do_not_both_get_the_writer(rules: int) -> None:
    """A canary, and the replacement of the allocation that it is to replace."""
    job = job_with()
    state = cluster(volume(1, SINGLE), job=job)
    plan = attempt(state, job).plan
    both = replace(plan, placements=(*plan.placements, replace(plan.placements[0], id="canary")))
    result = apply(state, ruled(c.ApplyPlan(plan=both), rules), index=state.index + 1).result
    assert isinstance(result, c.Rejected) is (rules >= LEAVING_WRITER_RULES)


def evaluated(state: Snapshot, command: c.AnyCommand) -> tuple[Snapshot, list[tuple[str, str]]]:
    """The state after a command, and the jobs and nodes that it evaluates."""
    before = set(state.evals.keys())
    state = after(state, ruled(command))
    return state, [(each.job_id, each.node_id) for each in state.evals.values() if each.id not in before]


@pytest.mark.parametrize("kind", ["system", "sysbatch"])
def test_a_system_job_is_evaluated_when_its_volume_changes_what_it_offers(kind: str) -> None:
    waiting = replace(job_with("everywhere", access_mode=MULTI), type=kind)
    others = (
        replace(job_with("elsewhere", source="other"), type=kind), job_with("service"),
        replace(waiting, id="stopped", name="stopped", stop=True), replace(waiting, id="far", datacenters=("far",)),
    )  # fmt: skip
    state = after(cluster(volume(1, SINGLE), job=waiting), *(c.RegisterJob(job=each) for each in others))
    assert not attempt(state, waiting).plan.placements
    changed = c.PutHostVolume(volume=volume(1, MULTI), now=factories.NOW)
    state, made = evaluated(state, changed)
    assert made == [("everywhere", node(1).id)]
    (evaluation,) = state.evals.values()
    assert (evaluation.status, evaluation.triggered_by, evaluation.type) == ("pending", "node-update", kind)
    assert len(attempt(state, waiting).plan.placements) == 1
    assert evaluated(state, changed)[1] == []


def test_a_system_job_is_evaluated_when_its_volume_is_not_deleted_after_all() -> None:
    job = replace(job_with("everywhere"), type="system")
    state = cluster(volume(1), job=job)
    state, made = evaluated(state, c.PutHostVolume(volume=volume(1, state="unavailable"), keeps_state=True))
    assert made == [] and not attempt(state, job).plan.placements
    assert evaluated(state, c.PutHostVolume(volume=volume(1)))[1] == [("everywhere", node(1).id)]


@pytest.mark.parametrize("deletes_volume", [False, True])
def test_a_system_job_is_evaluated_when_its_claim_is_deleted(deletes_volume: bool) -> None:
    job = replace(job_with("everywhere", sticky=True), type="system")
    state = cluster(volume(1), job=job)
    state = after(state, c.ApplyPlan(plan=attempt(state, job).plan))
    (claim,) = state.host_volume_claims.values()
    deletion: c.AnyCommand = c.DeleteHostVolumeClaim(id=claim.id, now=factories.NOW)
    if deletes_volume:
        deletion = c.DeleteHostVolume(namespace="default", id=claim.volume_id, now=factories.NOW)
    assert evaluated(state, deletion)[1] == [("everywhere", "")]


def test_an_earlier_version_evaluates_nothing_when_a_volume_changes() -> None:
    job = replace(job_with("everywhere", access_mode=MULTI), type="system")
    state = cluster(volume(1, SINGLE), job=job)
    state = after(state, ruled(c.PutHostVolume(volume=volume(1, MULTI)), CHANGED_VOLUME_RULES - 1))
    assert not len(state.evals)
