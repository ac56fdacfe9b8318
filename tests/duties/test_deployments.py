"""Watching deployments: failure, roll-back, promotion, and waking the job."""

from __future__ import annotations

from typing import Any

from yurt.duties.deployments import (
    DeploymentFailure,
    SeenDeployment,
    failed_by_user,
    failure_of,
    health_of,
    next_deadline,
    watch,
)
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    DeregisterJob,
    PromoteDeployment,
    RegisterJob,
    RegisterNode,
    SetDeploymentStatus,
    SetDesiredTransitions,
    SetJobStability,
    UpdateAllocsFromClient,
    UpsertEvaluations,
)
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.plan import Plan
from yurt.testing import factories


def deployed(state_of: Any, job: Job, *, on: Snapshot | None = None, count: int = 1, canary: bool = False) -> Snapshot:
    """The job registered, with a running deployment of its newest version and that many allocations of it."""
    state = state_of(RegisterJob(job=job), on=on)
    stored = state.jobs[job.key]
    node = factories.node("n1")
    deployment = factories.deployment(stored, id=f"d{stored.version}")
    health = AllocDeploymentStatus(canary=True) if canary else None
    placements = tuple(
        factories.placement(
            stored, on=node, index=i, id=f"a{stored.version}-{i}", deployment_id=deployment.id, deployment_status=health
        )
        for i in range(count)
    )
    plan = Plan(
        eval_id="e",
        namespace="default",
        job_id=job.id,
        placements=placements,
        deployment=deployment,
        now=factories.NOW,
    )
    return state_of(RegisterNode(node=node), ApplyPlan(plan=plan), on=state)


def reported(state_of: Any, state: Snapshot, alloc_id: str, *, healthy: bool, status: str = "running") -> Snapshot:
    update = AllocUpdate(
        id=alloc_id,
        node_id="n1",
        client_status=status,
        deployment_status=AllocDeploymentStatus(healthy=healthy, timestamp=factories.NOW),
    )
    return state_of(UpdateAllocsFromClient(updates=(update,), now=factories.NOW), on=state)


def the(state: Snapshot) -> Deployment:
    found = state.latest_deployment("default", "web")
    assert found is not None
    return found


def test_nothing_happens_while_nothing_changes(state_of: Any, mint_at: Any) -> None:
    state = deployed(state_of, factories.job())
    assert watch(state, the(state), SeenDeployment(), mint_at()) is None


def test_a_newly_healthy_allocation_wakes_the_job_once(state_of: Any, mint_at: Any) -> None:
    state = reported(state_of, deployed(state_of, factories.job()), "a0-0", healthy=True)
    command = watch(state, the(state), SeenDeployment(), mint_at())
    assert isinstance(command, UpsertEvaluations)
    (evaluation,) = command.evaluations
    assert (evaluation.triggered_by, evaluation.deployment_id) == ("deployment-watcher", "d0")
    assert watch(state, the(state), health_of(the(state)), mint_at()) is None


def test_an_unhealthy_allocation_that_may_be_replaced_is_marked_for_it(state_of: Any, mint_at: Any) -> None:
    state = reported(state_of, deployed(state_of, factories.job()), "a0-0", healthy=False, status="failed")
    command = watch(state, the(state), SeenDeployment(), mint_at())
    assert isinstance(command, SetDesiredTransitions)
    assert command.transitions["a0-0"].reschedule
    after = state_of(command, on=state)
    assert watch(after, the(after), health_of(the(after)), mint_at()) is None


def test_an_allocation_that_fails_after_it_was_healthy_is_marked_too(state_of: Any, mint_at: Any) -> None:
    state = reported(state_of, deployed(state_of, factories.job()), "a0-0", healthy=True)
    state = reported(state_of, state, "a0-0", healthy=True, status="failed")

    command = watch(state, the(state), health_of(the(state)), mint_at())

    assert isinstance(command, SetDesiredTransitions)
    assert command.transitions["a0-0"].reschedule


def test_an_unhealthy_allocation_that_may_not_be_replaced_fails_the_deployment(state_of: Any, mint_at: Any) -> None:
    job = factories.job(task_groups=(factories.group(reschedule_policy=None),))
    state = reported(state_of, deployed(state_of, job), "a0-0", healthy=False, status="failed")
    command = watch(state, the(state), SeenDeployment(), mint_at())
    assert isinstance(command, SetDeploymentStatus)
    assert command.update.status_description == "Failed due to unhealthy allocations"


def test_without_progress_by_the_deadline_the_deployment_fails(state_of: Any, mint_at: Any) -> None:
    state = deployed(state_of, factories.job())
    deadline = next_deadline(the(state))
    assert deadline == factories.NOW + seconds(600)
    assert failure_of(state, the(state), mint_at(599).now) is None
    failure = failure_of(state, the(state), mint_at(600).now)
    assert failure == DeploymentFailure("Failed due to progress deadline", frozenset({"web"}))


def test_a_paused_deployment_does_not_run_out_of_time(state_of: Any, mint_at: Any) -> None:
    state = deployed(state_of, factories.job())
    paused = replace(the(state), status="paused")
    assert next_deadline(paused) is None
    assert failure_of(state, paused, mint_at(10_000).now) is None


def test_auto_revert_goes_back_to_the_newest_stable_version(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(auto_revert=True)
    old = factories.job(task_groups=(factories.group(update=update),))
    state = state_of(RegisterJob(job=old), SetJobStability(namespace="default", job_id="web", version=0, stable=True))
    new = replace(old, meta={"release": "2"})
    state = deployed(state_of, new, on=state)
    command = watch(state, the(state), SeenDeployment(), mint_at(601))
    assert isinstance(command, SetDeploymentStatus)
    assert command.update.status_description == "Failed due to progress deadline - rolling back to job version 0"
    after = state_of(command, on=state)
    assert (after.jobs[new.key].version, dict(after.jobs[new.key].meta)) == (2, {})
    assert the(after).status == "failed"


def test_only_a_group_that_has_failed_takes_the_job_back(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(auto_revert=True)
    groups = (factories.group(reschedule_policy=None), factories.group("other", update=update))
    old = factories.job(task_groups=groups)
    state = state_of(RegisterJob(job=old), SetJobStability(namespace="default", job_id="web", version=0, stable=True))
    state = deployed(state_of, replace(old, meta={"release": "2"}), on=state)
    ill = reported(state_of, state, "a1-0", healthy=False, status="failed")
    command = watch(ill, the(ill), SeenDeployment(), mint_at())
    assert isinstance(command, SetDeploymentStatus)
    assert (command.update.status_description, command.job) == ("Failed due to unhealthy allocations", None)
    told = failed_by_user(state, the(state), state.jobs[old.key], mint_at())
    assert told.update.status_description == "Deployment marked as failed - rolling back to job version 0"


def test_auto_revert_does_not_undo_a_newer_version(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(auto_revert=True)
    old = factories.job(task_groups=(factories.group(update=update),))
    state = state_of(RegisterJob(job=old), SetJobStability(namespace="default", job_id="web", version=0, stable=True))
    state = deployed(state_of, replace(old, meta={"release": "2"}), on=state)
    state = state_of(RegisterJob(job=replace(old, meta={"release": "3"})), on=state)

    watched = watch(state, the(state), SeenDeployment(), mint_at(601))
    told = failed_by_user(state, the(state), state.jobs[old.key], mint_at())

    assert isinstance(watched, SetDeploymentStatus)
    assert (watched.job, told.job) == (None, None)
    assert (
        told.update.status_description
        == "Deployment marked as failed - not rolling back as the job has a newer version"
    )


def test_auto_revert_leaves_a_job_that_was_made_again(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(auto_revert=True)
    old = factories.job(task_groups=(factories.group(update=update),))
    stable = SetJobStability(namespace="default", job_id="web", version=0, stable=True)
    state = deployed(state_of, replace(old, meta={"release": "2"}), on=state_of(RegisterJob(job=old), stable))
    state = state_of(
        DeregisterJob(namespace="default", job_id="web", purge=True), RegisterJob(job=old), stable, on=state
    )
    state = state_of(RegisterJob(job=replace(old, meta={"release": "2"})), on=state)

    command = watch(state, the(state), SeenDeployment(), mint_at(601))

    assert isinstance(command, SetDeploymentStatus)
    assert command.job is None


def test_auto_revert_stays_when_there_is_nothing_to_go_back_to(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(auto_revert=True)
    state = deployed(state_of, factories.job(task_groups=(factories.group(update=update),)))
    command = watch(state, the(state), SeenDeployment(), mint_at(601))
    assert isinstance(command, SetDeploymentStatus)
    assert command.update.status_description.endswith(" - no stable job version to auto revert to")
    assert command.job is None


def test_healthy_canaries_are_promoted_when_every_group_says_so(state_of: Any, mint_at: Any) -> None:
    update = factories.update_strategy(canary=1, auto_promote=True)
    job = factories.job(task_groups=(factories.group(update=update),))
    state = deployed(state_of, job, canary=True)
    assert not isinstance(watch(state, the(state), SeenDeployment(), mint_at()), PromoteDeployment)
    state = reported(state_of, state, "a0-0", healthy=True)
    command = watch(state, the(state), SeenDeployment(), mint_at())
    assert isinstance(command, PromoteDeployment)
    assert the(state_of(command, on=state)).task_groups["web"].promoted
