"""Changing a group's count from outside, within the bounds of its scaling block."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.job import Job
from yurt.structs.questions import is_deployment_active


def scaling_problem(state: Snapshot, job: Job, group_name: str, count: int | None) -> str:
    """Why the group cannot be given this count, or ''."""
    group = job.group(group_name)
    if group is None:
        return f'task group "{group_name}" specified for scaling does not exist in job'
    if count is None:
        return ""
    if count < 0:
        return f"scaling action count can't be negative: {count}"
    if job.type == status.JOB_SYSTEM and count > 1:
        return 'jobs of type "system" can only be scaled between 0 and 1'
    if group.scaling is not None and count < group.scaling.min:
        return f"group count was less than scaling policy minimum: {count} < {group.scaling.min}"
    if group.scaling is not None and group.scaling.max and count > group.scaling.max:
        return f"group count was greater than scaling policy maximum: {count} > {group.scaling.max}"
    deployment = state.latest_deployment(job.namespace, job.id)
    if deployment is not None and is_deployment_active(deployment) and group.count != count:
        return "job scaling blocked due to active deployment"
    return ""


def scaled(job: Job, group_name: str, count: int) -> Job:
    """The job with another count of one group."""
    groups = tuple(replace(group, count=count) if group.name == group_name else group for group in job.task_groups)
    return replace(job, task_groups=groups)
