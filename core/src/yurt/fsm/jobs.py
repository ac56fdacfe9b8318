"""Jobs, their versions, submissions and stability.

A registration whose specification equals the current one writes no job: only its evaluation. Any other makes the
next version. Untagged versions are bounded; the newest stable one always survives, because a failed deployment goes
back to it.
"""

from __future__ import annotations

from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.evals import evaluation_for, put_evaluations, put_job_evaluation
from yurt.fsm.host_volumes import drop_claims
from yurt.fsm.reject import conflict, denied, invalid, not_found
from yurt.rules.idle import with_idle_policy
from yurt.rules.namespaces import namespace_problems
from yurt.sdk.errors import Reason
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.state.tables import JobKey, VersionKey
from yurt.structs import status
from yurt.structs.cluster import Namespace, SchedulerConfiguration
from yurt.structs.commands import (
    DeleteJobs,
    DeregisterJob,
    EvaluateJob,
    RegisterJob,
    Rejected,
    SetJobStability,
    SetJobVersionTag,
)
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job, JobSubmission
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.predicates import has_same_specification
from yurt.structs.rules import NAMESPACE_RULES

REGISTRATION_DISABLED: Final = "Job registration, dispatch, and scale are disabled by the scheduler configuration"


def register_job(edit: Edit, command: RegisterJob) -> Rejected | None:
    """Store a job and its evaluation."""
    job = command.job
    rejected = store_job(edit, job, submission=command.submission)
    if rejected is not None:
        return rejected
    if command.deployment_update is not None:
        update_deployment(edit, command.deployment_update, now=job.submit_time)
    prune_versions(edit, job.key, keep=max(1, command.tracked_versions))
    return put_job_evaluation(edit, job.key, command.evaluation)


def deregister_job(edit: Edit, command: DeregisterJob) -> Rejected | None:
    """Stop or delete a job; a missing job only gets an evaluation."""
    key = (command.namespace, command.job_id)
    job = edit.job(key)
    if job is None and command.evaluation is None:
        return not_found(f'job "{command.job_id}" in namespace "{command.namespace}" not found')
    if job is None:
        unknown = Job(namespace=command.namespace, id=command.job_id, priority=command.priority_default)
        return put_evaluations(edit, (evaluation_for(unknown, command.evaluation),))
    evaluation = None if job.is_template else evaluation_for(job, command.evaluation)
    if command.purge:
        _delete(edit, job)
        return put_evaluations(edit, (evaluation,))
    stopped = replace(job, stop=True, submit_time=command.submit_time or job.submit_time)
    return store_job(edit, stopped) or put_evaluations(edit, (evaluation,))


def evaluate_job(edit: Edit, command: EvaluateJob) -> Rejected | None:
    """Store an evaluation of a job in its present version; templates have none."""
    job = edit.job((command.namespace, command.job_id))
    if job is None:
        return not_found("job not found")
    if job.periodic is not None:
        return invalid("can't evaluate periodic job")
    if job.is_template:
        return invalid("can't evaluate parameterized job")
    return put_job_evaluation(edit, job.key, command.evaluation)


def delete_dead_jobs(edit: Edit, command: DeleteJobs) -> None:
    """Delete the jobs that are dead; skip the others."""
    for key in command.keys:
        job = edit.job(key)
        if job is not None and job.status == status.JOB_DEAD:
            _delete(edit, job)


def registration_denied(edit: Edit, *, is_management: bool) -> Rejected | None:
    """The rejection of registrations without management rights while the scheduler configuration forbids them."""
    if is_management:
        return None
    configuration: SchedulerConfiguration | None = edit.tx.get(Tables.scheduler_configurations, "")
    if configuration is not None and configuration.reject_job_registration:
        return denied(REGISTRATION_DISABLED, Reason.REGISTRATION_DISABLED)
    return None


def enforced_index_conflict(existing: Job | None, enforced: int | None) -> str:
    """The reason why a job whose index differs from `enforced` stays unchanged, or ''; 0 means that the job must not
    exist."""
    if enforced is None:
        return ""
    prefix = f"Enforcing job modify index {enforced}"
    if enforced == 0 and existing is not None:
        return f"{prefix}: job already exists"
    if enforced != 0 and existing is None:
        return f"{prefix}: job does not exist"
    if existing is not None and existing.job_modify_index != enforced:
        return f"{prefix}: job exists with conflicting job modify index: {existing.job_modify_index}"
    return ""


def store_job(edit: Edit, job: Job, *, submission: JobSubmission | None = None) -> Rejected | None:
    """Store a job as a new version, unless it equals the current specification."""
    if not job.id:
        return invalid("a job without an ID")
    if job.parent_id == job.id:
        return invalid(f'job "{job.id}" is its own parent')
    if edit.tx.get(Tables.namespaces, job.namespace) is None:
        return not_found(f'nonexistent namespace "{job.namespace}"')
    if edit.tx.get(Tables.node_pools, job.node_pool) is None:
        return not_found(f'nonexistent node pool "{job.node_pool}"')
    job = with_idle_policy(
        job, edit.tx.get(Tables.namespaces, job.namespace), edit.tx.get(Tables.node_pools, job.node_pool)
    )
    existing = edit.job(job.key)
    if existing is not None and has_same_specification(existing, job):
        return None
    if not job.stop and (problem := forbidden_use(edit, job)):
        return invalid(problem)
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
    # Uncounted under its old status first: the parent's counts would go below zero otherwise.
    if existing is not None:
        edit.summaries.count_child(existing, -1)
    edit.put_job(stored)
    edit.summaries.add(stored)
    edit.summaries.count_child(stored, 1)
    if submission is not None:
        edit.tx.put(Tables.job_submissions, (stored.namespace, stored.id, stored.version), submission)
    return None


def forbidden_use(edit: Edit, job: Job) -> str:
    """The features of the job that its namespace's present rules forbid; "" when they allow all."""
    if edit.rules_version < NAMESPACE_RULES:
        return ""
    namespace: Namespace | None = edit.tx.get(Tables.namespaces, job.namespace)
    return "" if namespace is None else next(namespace_problems(namespace, job), "")


def update_deployment(edit: Edit, update: DeploymentUpdate, *, now: UnixNano) -> bool:
    """Set an active deployment's status; success makes its job version stable. Returns False without a deployment."""
    deployment = edit.deployment(update.deployment_id)
    if deployment is None or deployment.status not in status.DEPLOYMENT_ACTIVE:
        return False
    if update.canaries:
        edit.put_deployment(_with_fewer_canaries(deployment, update, index=edit.index, now=now))
        return True
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
        job: Job | None = edit.tx.get(Tables.job_versions, version)
        if job is not None and job.create_index == deployment.job_create_index:
            _mark_stable(edit, job, stable=True)
    return True


def _with_fewer_canaries(deployment: Deployment, update: DeploymentUpdate, *, index: int, now: UnixNano) -> Deployment:
    """The deployment with fewer desired canaries in the groups that await their promotion; the status of a deployment
    that somebody has paused meanwhile stays."""
    groups = dict(deployment.task_groups)
    for name, canaries in update.canaries.items():
        state = groups.get(name)
        if state is not None and not state.promoted and 0 < canaries < state.desired_canaries:
            groups[name] = replace(state, desired_canaries=canaries)
    return replace(deployment, task_groups=groups, modify_index=index, modify_time=now or deployment.modify_time)


def set_stability(edit: Edit, command: SetJobStability) -> Rejected | None:
    """Set a version's stability."""
    job: Job | None = edit.tx.get(Tables.job_versions, (command.namespace, command.job_id, command.version))
    if job is None:
        return not_found(f'job "{command.job_id}" in namespace "{command.namespace}" has no version {command.version}')
    _mark_stable(edit, job, stable=command.stable)
    return None


def _mark_stable(edit: Edit, job: Job, *, stable: bool) -> None:
    if job.stable != stable:
        _put_version(edit, replace(job, stable=stable, modify_index=edit.index))


def _put_version(edit: Edit, marked: Job) -> None:
    """Change a version in place, both among the versions and as the current job."""
    current = edit.job(marked.key)
    if current is not None and current.version == marked.version:
        edit.put_job(marked)
    else:
        edit.tx.put(Tables.job_versions, (marked.namespace, marked.id, marked.version), marked)


def set_version_tag(edit: Edit, command: SetJobVersionTag) -> Rejected | None:
    """Set or remove a version's tag."""
    versions = _versions(edit, (command.namespace, command.job_id))
    tagged: Job | None = next(
        (job for job in versions if job.version_tag and job.version_tag.name == command.name), None
    )
    if command.tag is None:
        if tagged is None:
            return not_found(f'tag "{command.name}" not found on job "{command.job_id}"')
        _put_version(edit, replace(tagged, version_tag=None, modify_index=edit.index))
        return None
    current = edit.job((command.namespace, command.job_id))
    if current is None:
        return not_found(f'job "{command.job_id}" not found')
    version = current.version if command.version is None else command.version
    job = next((job for job in versions if job.version == version), None)
    if job is None:
        return not_found(f'job "{command.job_id}" version {version} not found')
    if tagged is not None and tagged.version != job.version:
        return conflict(f'tag "{command.name}" already exists on version {tagged.version} of job "{command.job_id}"')
    _put_version(edit, replace(job, version_tag=replace(command.tag, name=command.name), modify_index=edit.index))
    return None


def _version_keys(edit: Edit, key: JobKey) -> tuple[VersionKey, ...]:
    return edit.tx.keys_where(Tables.job_versions, "job", key)


def _versions(edit: Edit, key: JobKey) -> list[Job]:
    return edit.tx.rows(Tables.job_versions, _version_keys(edit, key))


def _delete(edit: Edit, job: Job) -> None:
    edit.summaries.count_child(job, -1)
    for version in _version_keys(edit, job.key):
        edit.tx.delete(Tables.job_versions, version)
        edit.tx.delete(Tables.job_submissions, version)
    edit.tx.delete(Tables.jobs, job.key)
    edit.tx.delete(Tables.job_summaries, job.key)
    edit.tx.delete(Tables.periodic_launches, job.key)
    edit.tx.delete(Tables.scaling_events, job.key)
    drop_claims(edit, job.key)
    for gang in edit.tx.keys_where(Tables.gang_rosters, "job", job.key):
        edit.tx.delete(Tables.gang_rosters, gang)


def prune_versions(edit: Edit, key: JobKey, *, keep: int) -> None:
    """Delete all but the newest untagged versions and the newest stable one."""
    if edit.tx.count_where(Tables.job_versions, "job", key) <= keep:
        return
    untagged = sorted((job for job in _versions(edit, key) if job.version_tag is None), key=lambda job: -job.version)
    retained, dropped = untagged[:keep], untagged[keep:]
    stable = next((job for job in untagged if job.stable), None)
    if stable in dropped and len(retained) > 1:
        dropped.remove(stable)
        dropped.append(retained[-1])
    current = edit.job(key)
    assert current is None or all(job.version != current.version for job in dropped), (key, "the current one stays")
    for job in dropped:
        version = (job.namespace, job.id, job.version)
        edit.tx.delete(Tables.job_versions, version)
        edit.tx.delete(Tables.job_submissions, version)
