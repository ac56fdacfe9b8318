"""Changes of a group's count within the bounds of its scaling block, and the record of scaling events."""

from __future__ import annotations

from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.evals import put_job_evaluation
from yurt.fsm.jobs import enforced_index_conflict, prune_versions, registration_denied, store_job
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.errors import Reason
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.commands import RecordScalingEvent, Rejected, ScaleJob
from yurt.structs.job import Job, JobScalingEvents, ScalingEvent
from yurt.structs.predicates import is_deployment_active, total_count_problem

SCALING_EVENTS_MAX: Final = 20
"""The maximum number of scaling events kept per group."""


def scale_job(edit: Edit, command: ScaleJob) -> Rejected | None:
    """Set a group's count as a new version of the job; stores the scaling event and its evaluation."""
    job = edit.job((command.namespace, command.job_id))
    if job is None:
        return not_found(f'job "{command.job_id}" not found')
    problem = enforced_index_conflict(job, command.enforce_index)
    if problem:
        return conflict(problem, Reason.JOB_CHANGED)
    rejected = registration_denied(edit, is_management=command.is_management) or _refusal(edit, job, command)
    if rejected is not None:
        return rejected
    event, group = command.event, job.group(command.group)
    assert group is not None
    event = replace(event, previous_count=group.count)
    if event.count is not None:
        scaled = replace(_with_count(job, command.group, event.count), submit_time=event.time)
        rejected = store_job(edit, scaled) or put_job_evaluation(edit, job.key, command.evaluation)
        prune_versions(edit, job.key, keep=max(1, command.tracked_versions))
        is_evaluated = command.evaluation is not None and not job.is_template
        event = replace(event, eval_id=command.evaluation.id if command.evaluation and is_evaluated else None)
    if rejected is None:
        _record(edit, job, command.group, event)
    return rejected


def record_scaling(edit: Edit, command: RecordScalingEvent) -> Rejected | None:
    """Record a scaling event without a change of the job."""
    job = edit.job((command.namespace, command.job_id))
    if job is None or job.group(command.group) is None:
        return not_found(f'group "{command.group}" of job "{command.job_id}" not found')
    _record(edit, job, command.group, command.event)
    return None


def _refusal(edit: Edit, job: Job, command: ScaleJob) -> Rejected | None:
    """The reason why the group's count cannot be set to this value."""
    group, count = job.group(command.group), command.event.count
    if group is None:
        return invalid(f'task group "{command.group}" specified for scaling does not exist in job')
    if count is None:
        return None
    if count < 0:
        return invalid(f"scaling action count can't be negative: {count}")
    if job.type == status.JOB_SYSTEM and count > 1:
        return invalid('jobs of type "system" can only be scaled between 0 and 1')
    if group.scaling is not None and count < group.scaling.min:
        return invalid(f"group count was less than scaling policy minimum: {count} < {group.scaling.min}")
    if group.scaling is not None and group.scaling.max and count > group.scaling.max:
        return invalid(f"group count was greater than scaling policy maximum: {count} > {group.scaling.max}")
    if group.count != count and _has_active_deployment(edit, job):
        return invalid("job scaling blocked due to active deployment")
    problem = total_count_problem(_with_count(job, command.group, count), command.count_max)
    return invalid(problem) if problem else None


def _has_active_deployment(edit: Edit, job: Job) -> bool:
    """Whether the job's newest deployment is active."""
    latest = edit.tx.base.latest_deployment(*job.key)
    return latest is not None and is_deployment_active(latest)


def _with_count(job: Job, group_name: str, count: int) -> Job:
    groups = tuple(replace(group, count=count) if group.name == group_name else group for group in job.task_groups)
    return replace(job, task_groups=groups)


def _record(edit: Edit, job: Job, group: str, event: ScalingEvent) -> None:
    existing: JobScalingEvents = edit.tx.get(Tables.scaling_events, job.key) or JobScalingEvents(
        namespace=job.namespace, job_id=job.id
    )
    events = (replace(event, create_index=edit.index), *existing.scaling_events.get(group, ()))[:SCALING_EVENTS_MAX]
    groups = {**existing.scaling_events, group: events}
    edit.tx.put(Tables.scaling_events, job.key, replace(existing, scaling_events=groups, modify_index=edit.index))
