"""Jobs, their versions, submissions and stability.

A registration whose specification equals the current one writes no job: only its evaluation. Any other makes the
next version. Untagged versions are bounded; the newest stable one always survives, because a failed deployment goes
back to it.
"""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.evals import put_evaluations
from yurt.fsm.host_volumes import drop_claims
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import UnixNano, replace
from yurt.state.store import JobKey, VersionKey
from yurt.structs import status
from yurt.structs.commands import (
    DeleteJobs,
    DeregisterJob,
    JobCommand,
    RecordScalingEvent,
    RegisterJob,
    Rejected,
    SetJobStability,
    SetJobVersionTag,
)
from yurt.structs.job import Job, JobScalingEvents, JobSubmission
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.questions import has_same_specification

SCALING_EVENTS_MAX = 20
"""Scaling events kept per group."""


def apply_job(edit: Edit, command: JobCommand) -> Rejected | None:
    """Apply a command on jobs."""
    match command:
        case RegisterJob():
            return _register(edit, command)
        case DeregisterJob():
            return _deregister(edit, command)
        case SetJobStability():
            return _set_stability(edit, command)
        case SetJobVersionTag():
            return _set_tag(edit, command)
        case RecordScalingEvent():
            return _record_scaling(edit, command)
        case DeleteJobs():
            for key in command.keys:
                _delete_dead(edit, key)
            return None
        case _:
            assert_never(command)


def store_job(edit: Edit, job: Job, *, submission: JobSubmission | None = None) -> Rejected | None:
    """Store a job as its next version, or nothing when its specification is the current one."""
    if not job.id:
        return invalid("a job without an ID")
    if job.parent_id == job.id:
        return invalid(f'job "{job.id}" is its own parent')
    if edit.tx.get("namespaces", job.namespace) is None:
        return not_found(f'nonexistent namespace "{job.namespace}"')
    if edit.tx.get("node_pools", job.node_pool) is None:
        return not_found(f'nonexistent node pool "{job.node_pool}"')
    existing = edit.job(job.key)
    if existing is not None and has_same_specification(existing, job):
        return None
    stored = replace(
        job,
        status=status.JOB_PENDING if existing is None else existing.status,
        status_description="",
        stable=False,
        version=0 if existing is None else existing.version + 1,
        create_index=edit.index if existing is None else existing.create_index,
        modify_index=edit.index,
        job_modify_index=edit.index,
        version_tag=None,
    )
    if existing is not None:
        edit.count_child(existing, -1)
    edit.put_job(stored)
    edit.add_summary(stored)
    edit.count_child(stored, 1)
    if submission is not None:
        edit.tx.put("job_submissions", (stored.namespace, stored.id, stored.version), submission)
    return None


def update_deployment(edit: Edit, update: DeploymentUpdate, *, now: UnixNano) -> bool:
    """Give an active deployment another status; a successful one makes its job version stable. False: there is none."""
    deployment = edit.deployment(update.deployment_id)
    if deployment is None or deployment.status not in status.DEPLOYMENT_ACTIVE:
        return False
    edit.put_deployment(
        replace(
            deployment,
            status=update.status,
            status_description=update.status_description,
            modify_index=edit.index,
            modify_time=now or deployment.modify_time,
        )
    )
    if update.status == status.DEPLOYMENT_SUCCESSFUL:
        version = (deployment.namespace, deployment.job_id, deployment.job_version)
        job: Job | None = edit.tx.get("job_versions", version)
        if job is not None and job.create_index == deployment.job_create_index:
            _mark_stable(edit, job, stable=True)
    return True


def _register(edit: Edit, command: RegisterJob) -> Rejected | None:
    job = command.job
    rejected = store_job(edit, job, submission=command.submission)
    if rejected is not None:
        return rejected
    if command.deployment_update is not None:
        update_deployment(edit, command.deployment_update, now=job.submit_time)
    _prune_versions(edit, job.key, keep=max(1, command.tracked_versions))
    return put_evaluations(edit, (command.evaluation,))


def _deregister(edit: Edit, command: DeregisterJob) -> Rejected | None:
    key = (command.namespace, command.job_id)
    job = edit.job(key)
    if job is None:
        return not_found(f'job "{command.job_id}" in namespace "{command.namespace}" not found')
    if command.purge:
        _delete(edit, job)
    else:
        stopped = replace(job, stop=True, submit_time=command.submit_time or job.submit_time)
        rejected = store_job(edit, stopped)
        if rejected is not None:
            return rejected
    return put_evaluations(edit, (command.evaluation,))


def _set_stability(edit: Edit, command: SetJobStability) -> Rejected | None:
    job: Job | None = edit.tx.get("job_versions", (command.namespace, command.job_id, command.version))
    if job is None:
        return not_found(f'job "{command.job_id}" in namespace "{command.namespace}" has no version {command.version}')
    _mark_stable(edit, job, stable=command.stable)
    return None


def _mark_stable(edit: Edit, job: Job, *, stable: bool) -> None:
    if job.stable != stable:
        _put_version(edit, replace(job, stable=stable, modify_index=edit.index))


def _put_version(edit: Edit, marked: Job) -> None:
    """Change a version where it stands, among the versions and, when it is the current one, as the job."""
    current = edit.job(marked.key)
    if current is not None and current.version == marked.version:
        edit.put_job(marked)
    else:
        edit.tx.put("job_versions", (marked.namespace, marked.id, marked.version), marked)


def _set_tag(edit: Edit, command: SetJobVersionTag) -> Rejected | None:
    versions = [edit.tx.get("job_versions", key) for key in _version_keys(edit, (command.namespace, command.job_id))]
    tagged: Job | None = next(
        (job for job in versions if job.version_tag and job.version_tag.name == command.name), None
    )
    if command.tag is None:
        if tagged is None:
            return not_found(f'tag "{command.name}" not found on job "{command.job_id}"')
        _put_version(edit, replace(tagged, version_tag=None, modify_index=edit.index))
        return None
    job = next((job for job in versions if job.version == command.version), None)
    if job is None:
        return not_found(f'job "{command.job_id}" version {command.version} not found')
    if tagged is not None and tagged.version != job.version:
        return conflict(f'tag "{command.name}" already exists on version {tagged.version} of job "{command.job_id}"')
    _put_version(edit, replace(job, version_tag=replace(command.tag, name=command.name), modify_index=edit.index))
    return None


def _record_scaling(edit: Edit, command: RecordScalingEvent) -> Rejected | None:
    key = (command.namespace, command.job_id)
    job = edit.job(key)
    if job is None or job.group(command.group) is None:
        return not_found(f'group "{command.group}" of job "{command.job_id}" not found')
    known: JobScalingEvents = edit.tx.get("scaling_events", key) or JobScalingEvents(
        namespace=command.namespace, job_id=command.job_id
    )
    event = replace(command.event, create_index=edit.index)
    events = (event, *known.scaling_events.get(command.group, ()))[:SCALING_EVENTS_MAX]
    groups = {**known.scaling_events, command.group: events}
    edit.tx.put("scaling_events", key, replace(known, scaling_events=groups, modify_index=edit.index))
    return None


def _version_keys(edit: Edit, key: JobKey) -> tuple[VersionKey, ...]:
    return edit.tx.keys_where("job_versions", "job", key)


def _delete_dead(edit: Edit, key: JobKey) -> None:
    job = edit.job(key)
    if job is not None and job.status == status.JOB_DEAD:
        _delete(edit, job)


def _delete(edit: Edit, job: Job) -> None:
    edit.count_child(job, -1)
    for version in _version_keys(edit, job.key):
        edit.tx.delete("job_versions", version)
        edit.tx.delete("job_submissions", version)
    edit.tx.delete("jobs", job.key)
    edit.tx.delete("job_summaries", job.key)
    edit.tx.delete("periodic_launches", job.key)
    edit.tx.delete("scaling_events", job.key)
    drop_claims(edit, job.key)


def _prune_versions(edit: Edit, key: JobKey, *, keep: int) -> None:
    versions: list[Job] = [edit.tx.get("job_versions", found) for found in _version_keys(edit, key)]
    untagged = sorted((job for job in versions if job.version_tag is None), key=lambda job: -job.version)
    kept, dropped = untagged[:keep], untagged[keep:]
    stable = next((job for job in untagged if job.stable), None)
    if stable in dropped and len(kept) > 1:
        dropped.remove(stable)
        dropped.append(kept[-1])
    for job in dropped:
        version = (job.namespace, job.id, job.version)
        edit.tx.delete("job_versions", version)
        edit.tx.delete("job_submissions", version)
