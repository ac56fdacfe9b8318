"""Deployments: status, health decided by operators, promotion.

The counters of a group follow its allocations (`Edit`). A deployment that has ended never changes again. A
successful one marks its job version stable; a failed one may store the job that it goes back to, as a new version.
"""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.allocs import with_health
from yurt.fsm.edit import Edit
from yurt.fsm.evals import put_evaluations
from yurt.fsm.jobs import forbidden_use, store_job, update_deployment
from yurt.fsm.reject import conflict, invalid, not_found, stale
from yurt.sdk.value import replace
from yurt.structs import status
from yurt.structs.commands import (
    DeleteDeployments,
    DeploymentCommand,
    PromoteDeployment,
    Rejected,
    SetDeploymentAllocHealth,
    SetDeploymentStatus,
)
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.predicates import is_deployment_active, is_terminal

STATUSES = frozenset(
    {status.DEPLOYMENT_FAILED, status.DEPLOYMENT_SUCCESSFUL, status.DEPLOYMENT_CANCELLED, *status.DEPLOYMENT_ACTIVE}
)
DESCRIPTION_RUNNING = "Deployment is running"
NOT_ALLOWED = ", which its namespace forbids"
"""The suffix of a deployment's description when rolling back is not allowed."""


def apply_deployment(edit: Edit, command: DeploymentCommand) -> Rejected | None:
    """Apply a deployment command."""
    match command:
        case SetDeploymentStatus():
            return _set_status(edit, command)
        case SetDeploymentAllocHealth():
            return _set_health(edit, command)
        case PromoteDeployment():
            return _promote(edit, command)
        case DeleteDeployments():
            return _delete(edit, command)
        case _:
            assert_never(command)


def _find_active(edit: Edit, deployment_id: str, *, expected: str = "") -> Deployment | Rejected:
    deployment = edit.deployment(deployment_id)
    if deployment is None:
        return not_found(f'deployment "{deployment_id}" not found')
    if not is_deployment_active(deployment):
        return conflict(f'deployment "{deployment_id}" has terminal status "{deployment.status}"')
    if expected not in ("", deployment.status):
        return stale(f'deployment "{deployment_id}" is {deployment.status}, and not {expected} any more')
    return deployment


def _set_status(edit: Edit, command: SetDeploymentStatus) -> Rejected | None:
    deployment = _find_active(edit, command.update.deployment_id, expected=command.expected_status)
    if isinstance(deployment, Rejected):
        return deployment
    if command.update.status not in STATUSES:
        return invalid(f'unknown deployment status "{command.update.status}"')
    update, job = command.update, command.job
    if job is not None and (problem := forbidden_use(edit, job)):
        # The deployment has failed all the same: only its job stays as it is.
        update, job = replace(update, status_description=f"{update.status_description}{NOT_ALLOWED}: {problem}"), None
    update_deployment(edit, update, now=command.now)
    rejected = None if job is None else store_job(edit, job)
    return rejected or put_evaluations(edit, (command.evaluation,))


def _set_health(edit: Edit, command: SetDeploymentAllocHealth) -> Rejected | None:
    deployment = _find_active(edit, command.deployment_id)
    if isinstance(deployment, Rejected):
        return deployment
    if command.update is not None and command.update.status not in STATUSES:
        return invalid(f'unknown deployment status "{command.update.status}"')
    verdicts = {**dict.fromkeys(command.healthy, True), **dict.fromkeys(command.unhealthy, False)}
    for alloc_id, healthy in verdicts.items():
        alloc = edit.alloc(alloc_id)
        if alloc is None:
            return not_found(f'allocation "{alloc_id}" not found')
        if alloc.deployment_id != deployment.id:
            return invalid(f'allocation "{alloc_id}" is not part of deployment "{deployment.id}"')
        health = with_health(alloc.deployment_status, healthy=healthy, timestamp=command.now, index=edit.index)
        changed = replace(alloc, deployment_status=health, modify_index=edit.index, modify_time=command.now)
        edit.put_alloc(alloc, changed)
    if command.update is not None:
        update_deployment(edit, command.update, now=command.now)
    return put_evaluations(edit, (command.evaluation,))


def _promote(edit: Edit, command: PromoteDeployment) -> Rejected | None:
    deployment = _find_active(edit, command.deployment_id, expected=command.expected_status)
    if isinstance(deployment, Rejected):
        return deployment
    unknown = [group for group in command.groups if group not in deployment.task_groups]
    if unknown:
        return invalid(f'deployment "{deployment.id}" has no group "{unknown[0]}"')
    groups = [
        group
        for group, state in deployment.task_groups.items()
        if state.desired_canaries and not state.promoted and (not command.groups or group in command.groups)
    ]
    if not groups:
        return conflict("no canaries to promote")
    for group in groups:
        healthy, desired = (
            _healthy_canaries(edit, deployment.task_groups[group]),
            deployment.task_groups[group].desired_canaries,
        )
        if healthy < desired:
            return conflict(f'Task group "{group}" has {healthy}/{desired} healthy allocations')
    states = dict(deployment.task_groups)
    for group in groups:
        states[group] = _promoted(edit, states[group], command)
    assert states.keys() == deployment.task_groups.keys(), (deployment.id, "a promotion adds no group")
    is_open = any(state.desired_canaries and not state.promoted for state in states.values())
    edit.put_deployment(
        replace(
            deployment,
            task_groups=states,
            status_description=deployment.status_description if is_open else DESCRIPTION_RUNNING,
            modify_index=edit.index,
            modify_time=command.now,
        )
    )
    return put_evaluations(edit, (command.evaluation,))


def _healthy_canaries(edit: Edit, state: DeploymentState) -> int:
    canaries = (edit.alloc(alloc_id) for alloc_id in state.placed_canaries)
    return sum(
        1
        for alloc in canaries
        if alloc is not None
        and not is_terminal(alloc)
        and alloc.deployment_status is not None
        and alloc.deployment_status.healthy
    )


def _promoted(edit: Edit, state: DeploymentState, command: PromoteDeployment) -> DeploymentState:
    assert not state.promoted, (command.deployment_id, "a group of a deployment is promoted once")
    for alloc_id in state.placed_canaries:
        alloc = edit.alloc(alloc_id)
        if alloc is None or alloc.deployment_status is None or not alloc.deployment_status.canary:
            continue
        health = replace(alloc.deployment_status, canary=False, modify_index=edit.index)
        changed = replace(alloc, deployment_status=health, modify_index=edit.index, alloc_modify_index=edit.index)
        edit.put_alloc(alloc, changed)
    deadline = command.now + state.progress_deadline if state.progress_deadline else state.require_progress_by
    return replace(state, promoted=True, require_progress_by=deadline)


def _delete(edit: Edit, command: DeleteDeployments) -> Rejected | None:
    for deployment_id in command.deployment_ids:
        deployment = edit.deployment(deployment_id)
        if deployment is not None and not is_deployment_active(deployment):
            edit.delete_deployment(deployment)
    return None
