"""Facts of one job, derived from its summary, newest deployment and blocked evaluation.

The summary counts by status, so most jobs cost a few look-ups. Allocations are looked at only where something starts or
has failed, and then a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from yurt.readmodels.alloc_facts import is_restarting, reason
from yurt.readmodels.job_status import (
    DEGRADED,
    FAILED,
    FAILING,
    Circumstances,
    Counts,
    job_status,
    sentence,
)
from yurt.readmodels.wait_reasons import WaitingAllocs, waiting_of
from yurt.sdk.value import Value, no_entries
from yurt.state.store import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.predicates import is_client_terminal, is_deployment_active
from yurt.structs.summary import JobSummary

LOOKED_AT_MAX: Final = 100
"""Allocations of a job that are examined for restarts and the reason of a failure."""
_BATCH: Final = (status.JOB_BATCH, status.JOB_SYSBATCH)
_SYSTEM: Final = (status.JOB_SYSTEM, status.JOB_SYSBATCH)


class JobFacts(Value):
    """One row of a list of jobs."""

    id: str = ""
    namespace: str = ""
    name: str = ""
    type: str = ""
    kind: str = ""
    status: str = ""
    reason: str = ""
    desired: int = 0
    running: int = 0
    starting: int = 0
    waiting: int = 0
    failed: int = 0
    lost: int = 0
    complete: int = 0
    unknown: int = 0
    node_pool: str = ""
    priority: int = 0
    version: int = 0
    submit_time: int = 0
    job_status: str = ""
    is_stopped: bool = False
    parent_id: str = ""
    create_index: int = 0
    modify_index: int = 0
    datacenters: tuple[str, ...] = ()
    children_pending: int = 0
    children_running: int = 0
    children_dead: int = 0
    deployment_id: str = ""
    deployment_status: str = ""
    needs_promotion: bool = False
    waiting_since: int = 0
    waiting_reasons: tuple[str, ...] = ()
    meta: Mapping[str, str] = no_entries()
    searched: str = ""
    """The text for searches, in lower case."""


def job_facts(state: Snapshot, job: Job) -> JobFacts:
    """The facts of a job."""
    summary = state.job_summaries.get(job.key) or JobSummary()
    deployment = _deployment_of(state, job)
    counts = _counts(state, job, summary)
    around = Circumstances(
        is_stopped=job.stop,
        is_template=job.is_template,
        is_batch=job.type in _BATCH,
        is_dead=job.status == status.JOB_DEAD,
        deployment=_stage(deployment),
        unhealthy=0 if deployment is None else sum(each.unhealthy_allocs for each in deployment.task_groups.values()),
    )
    found = job_status(counts, around)
    waiting = waiting_of(state, job.key) if counts.waiting else WaitingAllocs()
    return JobFacts(
        id=job.id, namespace=job.namespace, name=job.name, type=job.type, kind=_kind(job), status=found,
        reason=_reason(state, job, found, sentence(counts, found), waiting, deployment),
        desired=counts.desired, running=counts.running, starting=counts.starting, waiting=counts.waiting,
        failed=counts.failed, lost=counts.lost, complete=counts.complete, unknown=counts.unknown,
        node_pool=job.node_pool, priority=job.priority, version=job.version, submit_time=job.submit_time,
        job_status=job.status, is_stopped=job.stop, parent_id=job.parent_id, create_index=job.create_index,
        modify_index=job.modify_index, datacenters=job.datacenters, waiting_since=waiting.since,
        waiting_reasons=waiting.reasons, meta=job.meta,
        children_pending=0 if summary.children is None else summary.children.pending,
        children_running=0 if summary.children is None else summary.children.running,
        children_dead=0 if summary.children is None else summary.children.dead,
        deployment_id="" if deployment is None else deployment.id,
        deployment_status="" if deployment is None else deployment.status,
        needs_promotion=_needs_promotion(deployment),
        searched="\0".join((job.id, job.name, job.namespace, job.type, job.node_pool)).casefold(),
    )  # fmt: skip


def _kind(job: Job) -> str:
    if job.periodic is not None:
        return "periodic"
    return "parameterized" if job.parameterized_job is not None and not job.dispatched else ""


def _counts(state: Snapshot, job: Job, summary: JobSummary) -> Counts:
    groups = tuple(summary.summary.values())
    running, starting, waiting, unknown, complete = (
        sum(getattr(group, name) for group in groups)
        for name in ("running", "starting", "queued", "unknown", "complete")
    )
    desired = sum(group.count for group in job.task_groups)
    if job.is_template or job.stop:
        desired = 0
    elif job.type in _SYSTEM:  # as many as there are nodes for them: what is there is what is desired
        desired = running + starting + waiting + unknown + (complete if job.type in _BATCH else 0)
    return Counts(
        desired=desired, running=running, starting=starting, waiting=waiting, complete=complete, unknown=unknown,
        failed=sum(group.failed for group in groups), lost=sum(group.lost for group in groups),
        restarting=_restarting(state, job) if starting else 0,
    )  # fmt: skip


def _restarting(state: Snapshot, job: Job) -> int:
    live = islice(state.allocs.each_where("live", job.key), LOOKED_AT_MAX)
    return sum(alloc.client_status == status.CLIENT_PENDING and is_restarting(alloc) for alloc in live)


def _deployment_of(state: Snapshot, job: Job) -> Deployment | None:
    """The newest deployment, if it is of the job's version."""
    if not state.deployments.count_where("job", job.key):
        return None
    found = state.latest_deployment(*job.key)
    is_current = found is not None and found.job_version == job.version and found.job_create_index == job.create_index
    return found if is_current else None


def _stage(deployment: Deployment | None) -> str:
    if deployment is None:
        return ""
    if is_deployment_active(deployment):
        return "active"
    return "failed" if deployment.status == status.DEPLOYMENT_FAILED else ""


def _needs_promotion(deployment: Deployment | None) -> bool:
    """Whether all canaries are healthy and an operator must promote them."""
    if deployment is None or deployment.status not in (status.DEPLOYMENT_RUNNING, status.DEPLOYMENT_PAUSED):
        return False
    canaries = [each for each in deployment.task_groups.values() if each.desired_canaries and not each.promoted]
    return bool(canaries) and all(
        not each.auto_promote and each.healthy_allocs >= each.desired_canaries for each in canaries
    )


def _reason(
    state: Snapshot, job: Job, found: str, numbers: str, waiting: WaitingAllocs, deployment: Deployment | None
) -> str:
    """The explanation of a job's status, for people."""
    more = ""
    if found in (FAILED, FAILING, DEGRADED):
        more = _newest_failure(state, job)
        if not more and deployment is not None and deployment.status == status.DEPLOYMENT_FAILED:
            more = deployment.status_description
    elif waiting.reasons:
        more = "blocked by " + ", ".join(waiting.reasons)
    elif _needs_promotion(deployment):
        more = "canaries are healthy and wait for promotion"
    return ": ".join(part for part in (numbers, more) if part)


def _newest_failure(state: Snapshot, job: Job) -> str:
    """Why the last failed one of the examined allocations failed."""
    allocs = islice(state.allocs.each_where("job", job.key), LOOKED_AT_MAX)
    newest = max(filter(_has_failed, allocs), key=lambda alloc: alloc.modify_index, default=None)
    return "" if newest is None else reason(newest)


def _has_failed(alloc: Allocation) -> bool:
    is_over = is_client_terminal(alloc) and alloc.client_status != status.CLIENT_COMPLETE
    return is_over or is_restarting(alloc)
