"""Watches a deployment: when it fails, when it may be promoted, when its job must be evaluated again.

The scheduler decides that a deployment succeeded and how fast it goes on; this machine only wakes it when health
changed. It fails the deployment when a group made no progress by its deadline, or when an allocation is unhealthy and
cannot be replaced; where such a group has auto_revert, the job goes back to its newest stable version. An unhealthy
allocation that may be replaced is marked for it, and so is one that failed after it had been healthy: allocations of an
active deployment are not rescheduled otherwise, and nobody would look at it again once the deployment has succeeded.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

import msgspec

from yurt.fsm.alloc_triggers import is_reschedulable
from yurt.fsm.eval_triggers import Mint, evaluation_of
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.commands import (
    AnyCommand,
    PromoteDeployment,
    SetDeploymentStatus,
    SetDesiredTransitions,
    UpsertEvaluations,
)
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.predicates import has_same_specification, is_deployment_active, is_of_version, is_terminal

MARKED_MAX: Final = 500
"""The maximum number of allocations that one command marks, which bounds its log entry."""
FAILED_ALLOCATIONS: Final = "Failed due to unhealthy allocations"
FAILED_DEADLINE: Final = "Failed due to progress deadline"
FAILED_BY_USER: Final = "Deployment marked as failed"
NEWER_VERSION: Final = " - not rolling back as the job has a newer version"


class SeenDeployment(msgspec.Struct, frozen=True):
    """The deployment's health at the job's last evaluation: (healthy, unhealthy) by group."""

    counts: tuple[tuple[str, int, int], ...] = ()


def health_of(deployment: Deployment) -> SeenDeployment:
    """The health to record after an evaluation."""
    groups = sorted(deployment.task_groups.items())
    return SeenDeployment(tuple((name, group.healthy_allocs, group.unhealthy_allocs) for name, group in groups))


def is_only_placed(before: Deployment, after: Deployment) -> bool:
    """Whether the deployment changed only by placements, which requires no action."""
    return (
        health_of(before) == health_of(after)
        and replace(before, task_groups={}, modify_index=0) == replace(after, task_groups={}, modify_index=0)
        and {name: _unplaced(group) for name, group in before.task_groups.items()}
        == {name: _unplaced(group) for name, group in after.task_groups.items()}
    )


def _unplaced(group: DeploymentState) -> DeploymentState:
    return replace(group, placed_allocs=0, require_progress_by=0)


def watch(state: Snapshot, deployment: Deployment, seen: SeenDeployment, mint: Mint) -> AnyCommand | None:
    """The command that the deployment requires now, or None."""
    job = state.jobs.get((deployment.namespace, deployment.job_id))
    if job is None or not is_deployment_active(deployment):
        return None
    failure = failure_of(state, deployment, mint.now)
    if failure is not None:
        return failed(state, deployment, job, failure, mint)
    if deployment.status != status.DEPLOYMENT_PAUSED and is_promotable(state, deployment):
        evaluation = _evaluation(job, deployment, mint)
        return PromoteDeployment(
            deployment_id=deployment.id, evaluation=evaluation, now=mint.now, expected_status=deployment.status
        )
    replaceable = _replaceable(state, deployment)
    evaluation = _evaluation(job, deployment, mint)
    if replaceable:
        transitions = {alloc.id: DesiredTransition(reschedule=True) for alloc in replaceable}
        return SetDesiredTransitions(transitions=transitions, evaluations=(evaluation,), now=mint.now)
    if health_of(deployment) != seen and any(group.healthy_allocs for group in deployment.task_groups.values()):
        return UpsertEvaluations(evaluations=(evaluation,))
    return None


def next_deadline(deployment: Deployment) -> UnixNano | None:
    """The earliest progress deadline of the groups that still lack healthy allocations."""
    if deployment.status == status.DEPLOYMENT_PAUSED or not is_deployment_active(deployment):
        return None
    times = [group.require_progress_by for group in deployment.task_groups.values() if _is_short(group)]
    times = [time for time in times if time]
    return UnixNano(min(times)) if times else None


class DeploymentFailure(msgspec.Struct, frozen=True):
    """Why a deployment has failed, and in which groups."""

    reason: str
    groups: frozenset[str]


def failure_of(state: Snapshot, deployment: Deployment, now: UnixNano) -> DeploymentFailure | None:
    """The deployment's failure, if it has failed."""
    groups = deployment.task_groups
    ill = {
        alloc.task_group
        for alloc in state.allocs.each_where("deployment", deployment.id)
        if alloc.task_group in groups
        and _is_unhealthy(alloc)
        and not (groups[alloc.task_group].progress_deadline and is_reschedulable(alloc, now))
    }
    if ill:
        return DeploymentFailure(FAILED_ALLOCATIONS, frozenset(ill))
    if deployment.status == status.DEPLOYMENT_PAUSED:
        return None
    short = {name: group for name, group in groups.items() if group.progress_deadline and _is_short(group)}
    if any(0 < group.require_progress_by <= now for group in short.values()):
        return DeploymentFailure(FAILED_DEADLINE, frozenset(short))
    return None


def failed_by_user(state: Snapshot, deployment: Deployment, job: Job, mint: Mint) -> SetDeploymentStatus:
    """The command that fails all groups of a deployment on request of a user."""
    return failed(state, deployment, job, DeploymentFailure(FAILED_BY_USER, frozenset(deployment.task_groups)), mint)


def failed(
    state: Snapshot, deployment: Deployment, job: Job, failure: DeploymentFailure, mint: Mint
) -> SetDeploymentStatus:
    """The command that fails the deployment, with a rollback to the newest stable version if a failed group requires
    it.

    A job that has a newer version stays as it is: its deployment is about to be cancelled, and going back would undo
    what somebody registered since.
    """
    assert failure.groups <= deployment.task_groups.keys(), (deployment.id, failure.groups)
    revert, text = None, failure.reason
    if any(deployment.task_groups[name].auto_revert for name in failure.groups):
        is_current = is_of_version(deployment, job)
        revert, suffix = rollback(state, deployment, job) if is_current else (None, NEWER_VERSION)
        text += suffix
    evaluation = _evaluation(job, deployment, mint)
    return SetDeploymentStatus(
        update=DeploymentUpdate(deployment_id=deployment.id, status=status.DEPLOYMENT_FAILED, status_description=text),
        evaluation=evaluation,
        job=replace(revert, submit_time=mint.now) if revert is not None else None,
        now=mint.now,
        expected_status=deployment.status,
    )


def rollback(state: Snapshot, deployment: Deployment, job: Job) -> tuple[Job | None, str]:
    """The version to roll back to, or None, and the suffix of the deployment's description."""
    versions = [
        version
        for version in state.job_versions.where("job", job.key)
        if version.stable and version.version != deployment.job_version
    ]
    stable = max(versions, key=lambda version: version.version, default=None)
    if stable is None:
        return None, " - no stable job version to auto revert to"
    if has_same_specification(stable, job):
        return (
            None,
            f" - not rolling back to stable job version {stable.version} as current job has same specification",
        )
    return replace(stable, stop=False), f" - rolling back to job version {stable.version}"


def is_promotable(state: Snapshot, deployment: Deployment) -> bool:
    """Whether every group with canaries promotes automatically and all its canaries are healthy."""
    job = state.version(deployment.namespace, deployment.job_id, deployment.job_version)
    waiting = {n: g for n, g in deployment.task_groups.items() if g.desired_canaries and not g.promoted}
    if job is None or not waiting:
        return False
    for name, group in waiting.items():
        spec = job.group(name)
        if spec is None or spec.update is None or not spec.update.auto_promote:
            return False
        canaries = (state.allocs.get(alloc_id) for alloc_id in group.placed_canaries)
        healthy = [a for a in canaries if a is not None and _is_healthy(a) and not is_terminal(a)]
        if len(healthy) < group.desired_canaries:
            return False
    return True


def _replaceable(state: Snapshot, deployment: Deployment) -> tuple[Allocation, ...]:
    """Allocations to mark for rescheduling, limited in number; the next step marks the rest."""
    found = (
        alloc
        for alloc in state.allocs.each_where("deployment", deployment.id)
        if alloc.task_group in deployment.task_groups
        and (_is_unhealthy(alloc) or alloc.client_status == status.CLIENT_FAILED)
        and not alloc.desired_transition.reschedule
        and alloc.desired_status == status.DESIRED_RUN
    )
    return tuple(nsmallest(MARKED_MAX, found, key=lambda alloc: alloc.id))


def _is_short(group: DeploymentState) -> bool:
    """Whether there are fewer healthy allocations than the phase requires; healthy canaries may await promotion."""
    if group.desired_canaries and not group.promoted:
        return group.healthy_allocs < group.desired_canaries
    return group.healthy_allocs < max(group.desired_total, group.desired_canaries)


def _is_healthy(alloc: Allocation) -> bool:
    return alloc.deployment_status is not None and alloc.deployment_status.healthy is True


def _is_unhealthy(alloc: Allocation) -> bool:
    return alloc.deployment_status is not None and alloc.deployment_status.healthy is False


def _evaluation(job: Job, deployment: Deployment, mint: Mint) -> Evaluation:
    return replace(evaluation_of(job, status.TRIGGER_DEPLOYMENT_WATCHER, mint), deployment_id=deployment.id)
