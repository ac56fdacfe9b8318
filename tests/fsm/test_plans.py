"""What an accepted plan makes of the state."""

from __future__ import annotations

import pytest
from yurt.sdk.value import UnixNano, replace
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, DesiredTransition, RescheduleTracker
from yurt.structs.commands import (
    AnyCommand,
    ApplyPlan,
    DeleteNodes,
    DeregisterJob,
    RegisterJob,
    RegisterNode,
    Rejected,
    SetDesiredTransitions,
    SetNodeStatus,
)
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, AttributeUpdate, DeploymentUpdate, InPlaceUpdate, Plan
from yurt.structs.rules import PLAN_ORDER_RULES
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")
NODE = factories.node(factories.number_id(1, kind=1))
LATER = UnixNano(factories.NOW + 5)


@pytest.fixture
def job(replica: Replica) -> Job:
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=factories.job()))
    return replica.state.jobs[KEY]


def plan(**changes: object) -> Plan:
    return replace(Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW), **changes)


def submit(replica: Replica, **changes: object) -> None:
    replica.apply(ApplyPlan(plan=plan(**changes)))


def place(replica: Replica, job: Job, **changes: object) -> Allocation:
    placement = factories.placement(job, on=NODE, **changes)
    submit(replica, placements=(placement,))
    return replica.state.allocs[placement.id]


def test_a_placement_becomes_an_allocation(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    assert alloc.job is job
    assert (alloc.job_id, alloc.namespace, alloc.eval_id, alloc.node_name) == ("web", "default", "e", NODE.name)
    assert (alloc.desired_status, alloc.client_status) == ("run", "pending")
    assert (alloc.create_index, alloc.modify_index, alloc.alloc_modify_index) == (3, 3, 3)
    assert (alloc.create_time, alloc.modify_time) == (factories.NOW, factories.NOW)
    assert replica.state.jobs[KEY].status == status.JOB_RUNNING
    assert replica.state.job_summaries[KEY].summary["web"].starting == 1


def test_equal_resources_are_held_once(replica: Replica, job: Job) -> None:
    submit(replica, placements=tuple(factories.placement(job, on=NODE, index=index) for index in range(3)))
    assert len({id(alloc.allocated_resources) for alloc in replica.state.allocs.values()}) == 1


def test_a_replacement_is_linked_from_the_old_allocation(replica: Replica, job: Job) -> None:
    old = place(replica, job)
    new = place(replica, job, previous_allocation=old.id)
    linked = replica.state.allocs[old.id]
    assert new.previous_allocation == old.id
    assert (linked.next_allocation, linked.modify_index, linked.alloc_modify_index) == (new.id, 4, 3)


@pytest.mark.parametrize(
    "gone", [SetNodeStatus(node_id=NODE.id, status="down", updated_at=1), DeleteNodes(node_ids=(NODE.id,))]
)
def test_what_is_to_stop_on_a_node_that_is_down_or_gone_is_lost(replica: Replica, job: Job, gone: AnyCommand) -> None:
    alloc = place(replica, job)
    replica.apply(gone)
    submit(replica, stops=(AllocStop(id=alloc.id, node_id=NODE.id, description="why"),), now=LATER)
    stopped = replica.state.allocs[alloc.id]
    assert (stopped.desired_status, stopped.desired_description, stopped.client_status) == ("stop", "why", "lost")
    assert [(state.value, state.time) for state in stopped.alloc_states] == [("lost", LATER)]


def test_a_stop_must_be_fetched_by_the_client(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    submit(replica, stops=(AllocStop(id=alloc.id, node_id=NODE.id, description="why"),), now=LATER)
    stopped = replica.state.allocs[alloc.id]
    assert (stopped.desired_status, stopped.desired_description, stopped.client_status) == ("stop", "why", "pending")
    assert (stopped.alloc_modify_index, stopped.modify_time, stopped.alloc_states) == (4, LATER, ())


def test_a_lost_allocation_logs_its_state_and_counts_as_lost(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    submit(replica, stops=(AllocStop(id=alloc.id, node_id=NODE.id, client_status="lost"),), now=LATER)
    lost = replica.state.allocs[alloc.id]
    assert lost.client_status == status.CLIENT_LOST
    assert [(one.field, one.value, one.time) for one in lost.alloc_states] == [("ClientStatus", "lost", LATER)]
    assert replica.state.job_summaries[KEY].summary["web"].lost == 1
    assert replica.state.job_summaries[KEY].summary["web"].starting == 0


def test_an_unknown_allocation_is_still_wanted(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    stop = AllocStop(
        id=alloc.id, node_id=NODE.id, desired_status="run", client_status="unknown", followup_eval_id="later"
    )
    submit(replica, stops=(stop,))
    unknown = replica.state.allocs[alloc.id]
    assert (unknown.desired_status, unknown.client_status, unknown.followup_eval_id) == ("run", "unknown", "later")
    assert replica.state.jobs[KEY].status == status.JOB_RUNNING


def test_a_preempted_allocation_names_who_preempted_it(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    eviction = AllocStop(id=alloc.id, node_id=NODE.id, desired_status="evict", preempted_by="other")
    submit(replica, preemptions=(eviction,))
    evicted = replica.state.allocs[alloc.id]
    assert (evicted.desired_status, evicted.preempted_by_allocation) == ("evict", "other")


def test_an_in_place_update_moves_to_the_version_and_leaves_health_behind_with_the_deployment(
    replica: Replica, job: Job
) -> None:
    alloc = place(replica, job, deployment_status=AllocDeploymentStatus(healthy=True))
    replica.apply(RegisterJob(job=factories.job(priority=70)))
    submit(replica, in_place=(InPlaceUpdate(id=alloc.id, node_id=NODE.id, job_version=1, deployment_id="d"),))
    moved = replica.state.allocs[alloc.id]
    assert moved.job is replica.state.jobs[KEY]
    assert (moved.deployment_id, moved.deployment_status, moved.alloc_modify_index) == ("d", None, 5)
    assert moved.allocated_resources is alloc.allocated_resources


def test_attributes_change_one_by_one(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    replica.apply(SetDesiredTransitions(transitions={alloc.id: DesiredTransition(migrate=True)}))
    tracker = RescheduleTracker(last_reschedule="no placement")
    update = AttributeUpdate(
        id=alloc.id,
        node_id=NODE.id,
        followup_eval_id="f",
        client_status="running",
        reschedule_tracker=tracker,
        desired_transition_clear=True,
        append_state=("running", 9),
        canary=True,
    )
    submit(replica, attributes=(update,))
    changed = replica.state.allocs[alloc.id]
    assert (changed.followup_eval_id, changed.client_status, changed.reschedule_tracker) == ("f", "running", tracker)
    assert changed.desired_transition == DesiredTransition()
    assert [one.value for one in changed.alloc_states] == ["running"]
    assert changed.deployment_status is not None
    assert changed.deployment_status.canary


def test_transitions_add_up(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    replica.apply(SetDesiredTransitions(transitions={alloc.id: DesiredTransition(migrate=True)}))
    replica.apply(SetDesiredTransitions(transitions={alloc.id: DesiredTransition(reschedule=True)}))
    assert replica.state.allocs[alloc.id].desired_transition == DesiredTransition(migrate=True, reschedule=True)
    unknown = SetDesiredTransitions(transitions={"stranger": DesiredTransition()})
    assert replica.reject(unknown).kind == "not_found"


def test_a_deployment_counts_placements_and_canaries_and_starts_its_deadline(replica: Replica, job: Job) -> None:
    deployment = factories.deployment(job)
    ordinary = factories.placement(job, on=NODE, deployment_id=deployment.id)
    canary = factories.placement(
        job, on=NODE, index=1, deployment_id=deployment.id, deployment_status=AllocDeploymentStatus(canary=True)
    )
    submit(replica, placements=(ordinary, canary), deployment=deployment)
    stored = replica.state.deployments[deployment.id]
    group = stored.task_groups["web"]
    assert stored.create_index == 3
    assert (group.placed_allocs, group.placed_canaries) == (2, (canary.id,))
    assert group.require_progress_by == factories.NOW + group.progress_deadline


def test_the_second_part_of_a_plan_adds_to_the_same_deployment(replica: Replica, job: Job) -> None:
    deployment = factories.deployment(job)
    for index in range(2):
        part = factories.placement(job, on=NODE, index=index, deployment_id=deployment.id)
        submit(replica, placements=(part,), deployment=deployment)
    stored = replica.state.deployments[deployment.id]
    assert (stored.create_index, stored.task_groups["web"].placed_allocs) == (3, 2)


def test_an_older_deployment_is_cancelled_with_the_plan(replica: Replica, job: Job) -> None:
    old = factories.deployment(job)
    submit(replica, deployment=old)
    update = DeploymentUpdate(deployment_id=old.id, status="cancelled", status_description="newer")
    submit(replica, deployment_updates=(update,))
    assert replica.state.deployments[old.id].status == status.DEPLOYMENT_CANCELLED


def test_what_is_gone_is_left_out(replica: Replica, job: Job) -> None:
    submit(
        replica,
        stops=(AllocStop(id="gone", node_id=NODE.id),),
        in_place=(InPlaceUpdate(id="gone", node_id=NODE.id, job_version=0),),
        attributes=(AttributeUpdate(id="gone", node_id=NODE.id, followup_eval_id="f"),),
    )
    assert len(replica.state.allocs) == 0


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"job_version": 7}, "conflict"),
        ({"task_group": "other"}, "invalid"),
        ({"node_id": "gone"}, "conflict"),
        ({"id": ""}, "invalid"),
    ],
)
def test_a_placement_that_does_not_fit_rejects_the_whole_plan(
    replica: Replica, job: Job, changes: dict[str, object], kind: str
) -> None:
    alloc = place(replica, job)
    bad = replace(factories.placement(job, on=NODE), **changes)
    stop = AllocStop(id=alloc.id, node_id=NODE.id)
    assert replica.reject(ApplyPlan(plan=plan(placements=(bad,), stops=(stop,)))).kind == kind


def test_a_plan_of_a_purged_job_is_rejected_and_its_allocations_stay(replica: Replica, job: Job) -> None:
    alloc = place(replica, job)
    replica.apply(DeregisterJob(namespace="default", job_id="web", purge=True))
    assert replica.reject(ApplyPlan(plan=plan(placements=(factories.placement(job, on=NODE),)))).kind == "conflict"
    submit(replica, stops=(AllocStop(id=alloc.id, node_id=NODE.id),))
    assert replica.state.allocs[alloc.id].desired_status == "stop"


def test_allocations_of_an_earlier_life_of_the_job_are_not_in_its_summary(replica: Replica, job: Job) -> None:
    place(replica, job)
    replica.apply(DeregisterJob(namespace="default", job_id="web", purge=True), RegisterJob(job=factories.job()))
    assert replica.state.job_summaries[KEY].summary["web"].starting == 0
    place(replica, replica.state.jobs[KEY])
    assert replica.state.job_summaries[KEY].summary["web"].starting == 1


def accepts(replica: Replica, token: str, made_at: int, **changes: object) -> bool:
    """Apply a plan of the evaluation with this token, made on the state at an index; whether it was accepted."""
    result = replica.step(ApplyPlan(plan=plan(eval_token=token, snapshot_index=made_at, **changes))).result
    assert not isinstance(result, Rejected) or result.kind == "stale", result
    return not isinstance(result, Rejected)


def test_a_plan_that_was_made_without_the_last_placements_of_its_job_is_stale(replica: Replica, job: Job) -> None:
    def placed() -> dict[str, object]:
        return {"placements": (factories.placement(job, on=NODE),)}

    early = replica.state.index
    assert accepts(replica, "first", early, **placed())
    between = replica.state.index
    assert accepts(replica, "first", early, **placed()), "the second part of that plan was made on the same state"
    first, _ = replica.state.allocs_of_job(*KEY)
    stops = {"stops": (AllocStop(id=first.id, node_id=NODE.id),)}
    for made_at in (early, between):
        assert not accepts(replica, "second", made_at, **placed())
        assert not accepts(replica, "second", made_at, **stops), "it would leave the other one"
    assert not accepts(replica, "first", between, **placed()), "a later attempt of the evaluation lacks them too"
    assert accepts(replica, "second", replica.state.index, **stops)
    assert accepts(replica, "third", replica.state.index, **placed())


def test_a_job_that_is_registered_again_after_its_purge_has_no_earlier_placements(replica: Replica, job: Job) -> None:
    assert accepts(replica, "first", replica.state.index, placements=(factories.placement(job, on=NODE),))
    assert replica.state.job_summaries[KEY].plan_index == replica.state.index
    replica.apply(DeregisterJob(namespace="default", job_id="web", purge=True), RegisterJob(job=factories.job()))
    assert replica.state.job_summaries[KEY].plan_index == 0


def test_earlier_rules_accept_a_plan_that_was_made_without_the_last_placements_of_its_job() -> None:
    replica = Replica(rules_version=PLAN_ORDER_RULES - 1)
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=factories.job()))
    early, job = replica.state.index, replica.state.jobs[KEY]
    for token in ("first", "second"):
        assert accepts(replica, token, early, placements=(factories.placement(job, on=NODE),))
    assert replica.state.job_summaries[KEY].plan_index == 0
