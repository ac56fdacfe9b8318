"""Deployments: creation, cancellation and completion by the scheduler (docs/explanation/reconciling.md)."""

from __future__ import annotations

from yurt.scheduler.ids import SeededIds
from yurt.scheduler.reconcile.results import Results
from yurt.sdk.value import UnixNano
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.predicates import is_of_version
from yurt.structs.status import (
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_CANCELLED,
    DEPLOYMENT_RUNNING,
    DEPLOYMENT_SUCCESSFUL,
)

RUNNING = "Deployment is running"
NEEDS_PROMOTION = "Deployment is running but requires manual promotion"
AUTO_PROMOTION = "Deployment is running pending automatic promotion"
NEWER_VERSION = "Cancelled due to newer version of job"
JOB_STOPPED = "Cancelled because job is stopped"


def cancel_unneeded(deployment: Deployment | None, job: Job | None, results: Results) -> Deployment | None:
    """Cancel a deployment of an older version; returns the deployment of the job's present version."""
    if deployment is None:
        return None
    description = ""
    if job is None or job.stop:
        description = JOB_STOPPED
    elif not is_of_version(deployment, job):
        description = NEWER_VERSION
    if description:
        if deployment.status in DEPLOYMENT_ACTIVE:
            results.deployment_updates.append(
                DeploymentUpdate(
                    deployment_id=deployment.id, status=DEPLOYMENT_CANCELLED, status_description=description
                )
            )
        return None
    return None if deployment.status == DEPLOYMENT_SUCCESSFUL else deployment


def fresh_state(group: TaskGroup) -> DeploymentState:
    """The initial deployment state of a group."""
    update = group.update
    assert update is not None
    return DeploymentState(
        auto_revert=update.auto_revert, auto_promote=update.auto_promote, progress_deadline=update.progress_deadline
    )


def new_deployment(
    job: Job, current: Deployment | None, results: Results, *, ids: SeededIds, now: UnixNano
) -> Deployment | None:
    """The deployment to create when a group starts a roll-out without one."""
    if current is not None or not results.states:
        return None
    assert all(state.desired_total > 0 for state in results.states.values()), (
        "a group without allocations rolls nothing"
    )
    canaries = [name for name, state in results.states.items() if state.desired_canaries]
    description = RUNNING
    if canaries:
        groups = (job.group(name) for name in canaries)
        is_auto = all(group is not None and group.update is not None and group.update.auto_promote for group in groups)
        description = AUTO_PROMOTION if is_auto else NEEDS_PROMOTION
    return Deployment(
        id=ids.next("deployment"),
        namespace=job.namespace,
        job_id=job.id,
        job_version=job.version,
        job_modify_index=job.modify_index,
        job_spec_modify_index=job.job_modify_index,
        job_create_index=job.create_index,
        task_groups=dict(results.states),
        status=DEPLOYMENT_RUNNING,
        status_description=description,
        create_time=now,
        modify_time=now,
    )


def is_complete(deployment: Deployment) -> bool:
    """Whether all groups of an active deployment are healthy and promoted."""
    return deployment.status in DEPLOYMENT_ACTIVE and all(map(is_group_complete, deployment.task_groups.values()))


def is_group_complete(state: DeploymentState) -> bool:
    """Whether a group of a deployment has as many healthy allocations as it wants, and is promoted."""
    return state.healthy_allocs >= max(state.desired_total, state.desired_canaries) and is_promoted(state)


def is_promoted(state: DeploymentState) -> bool:
    """Whether a group of a deployment waits for no promotion."""
    return state.promoted or not state.desired_canaries
