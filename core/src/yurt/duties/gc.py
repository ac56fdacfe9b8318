"""What may be forgotten: terminal objects that are old enough and that nothing live refers to (invariant D9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from yurt.sdk.value import UnixNano, Value
from yurt.state import Snapshot
from yurt.state.store import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import (
    AnyCommand,
    DeleteDeployments,
    DeleteEvaluations,
    DeleteHostVolume,
    DeleteJobs,
    DeleteNodes,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.questions import is_deployment_active, is_eval_terminal, is_terminal

T = TypeVar("T")
BATCH = 1_000
"""Objects deleted by one command, which bounds a log entry."""
SECOND = 1_000_000_000


class Cutoffs(Value):
    """Objects last changed before these times (unix ns) are old enough."""

    eval: UnixNano
    batch_eval: UnixNano
    job: UnixNano
    node: UnixNano
    deployment: UnixNano


def dead_jobs(state: Snapshot, cutoffs: Cutoffs, now: UnixNano) -> tuple[JobKey, ...]:
    """The jobs that may go, with all that they leave behind: batch jobs are kept whole until then."""
    return tuple(sorted(job.key for job in state.jobs.values() if _is_job_garbage(state, job, cutoffs, now)))


def delete_jobs(keys: Iterable[JobKey]) -> Iterator[AnyCommand]:
    """Commands that forget those of the jobs that are still dead when they are applied."""
    for chunk in _chunks(keys):
        yield DeleteJobs(keys=chunk)


def left_behind(state: Snapshot, keys: Iterable[JobKey]) -> Iterator[AnyCommand]:
    """Commands that forget the evaluations and allocations of those of the jobs that are gone by now.

    A batch job that came to life meanwhile keeps its allocations: without them it would run anew (invariant D4).
    """
    gone = [key for key in keys if key not in state.jobs]
    evals = [one.id for key in gone for one in state.evals.where("job", key) if is_eval_terminal(one)]
    allocs = [alloc.id for key in gone for alloc in state.allocs_of_job(*key) if is_terminal(alloc)]
    yield from _forget(evals, allocs)


def collect(state: Snapshot, cutoffs: Cutoffs, now: UnixNano) -> Iterator[AnyCommand]:
    """Commands that forget all that may be forgotten besides jobs."""
    evals: list[str] = []
    allocs: list[str] = []
    for evaluation in state.evals.values():
        is_done, related = _eval_garbage(state, evaluation, cutoffs, now)
        allocs.extend(related)
        if is_done:
            evals.append(evaluation.id)
    yield from _forget(evals, allocs)
    for chunk in _chunks(_deployments(state, cutoffs)):
        yield DeleteDeployments(deployment_ids=chunk)
    nodes = _nodes(state, cutoffs)
    yield from _volumes_of(state, nodes)
    for chunk in _chunks(nodes):
        yield DeleteNodes(node_ids=chunk)


def _forget(evals: list[str], allocs: list[str]) -> Iterator[AnyCommand]:
    for chunk in _chunks(sorted(evals)):
        yield DeleteEvaluations(eval_ids=chunk)
    for chunk in _chunks(sorted(allocs)):
        yield DeleteEvaluations(alloc_ids=chunk)


def _volumes_of(state: Snapshot, node_ids: Iterable[str]) -> Iterator[AnyCommand]:
    """The host volumes of nodes that go for ever, which is for their operators to say (`gc_volumes_on_node_gc`)."""
    for node_id in node_ids:
        if state.nodes[node_id].gc_volumes_on_node_gc:
            for volume in sorted(state.host_volumes.where("node", node_id), key=lambda each: each.id):
                yield DeleteHostVolume(namespace=volume.namespace, id=volume.id)


def is_alloc_garbage(state: Snapshot, alloc: Allocation, cutoff: UnixNano, now: UnixNano) -> bool:
    """The allocation is over, old, and no longer needed to replace it or to count its attempts."""
    if not is_terminal(alloc) or alloc.modify_time > cutoff or alloc.client_status == status.CLIENT_RUNNING:
        return False
    job = state.jobs.get((alloc.namespace, alloc.job_id))
    if job is None or job.stop or job.status == status.JOB_DEAD or alloc.desired_status == status.DESIRED_STOP:
        return True
    if alloc.client_status != status.CLIENT_FAILED or alloc.next_allocation:
        return True
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    policy = group.reschedule_policy if group is not None else None
    if policy is None or not (policy.unlimited or policy.attempts):
        return True
    if policy.unlimited:
        return False
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker is not None else ()
    return bool(events) and now - events[-1].reschedule_time > policy.interval


def _eval_garbage(
    state: Snapshot, evaluation: Evaluation, cutoffs: Cutoffs, now: UnixNano
) -> tuple[bool, tuple[str, ...]]:
    """Whether the evaluation may go, and which of its allocations may."""
    is_batch = evaluation.type in (status.JOB_BATCH, status.JOB_SYSBATCH)
    cutoff = cutoffs.batch_eval if is_batch else cutoffs.eval
    if not is_eval_terminal(evaluation) or evaluation.modify_time > cutoff:
        return False, ()
    allocs = state.allocs.where("eval", evaluation.id)
    if is_batch:
        job = state.jobs.get((evaluation.namespace, evaluation.job_id))
        if job is not None and not (job.status == status.JOB_DEAD and job.stop):
            old = (a for a in allocs if a.job is not None and a.job.create_index < job.create_index)
            ended = tuple(a.id for a in old if is_terminal(a) and a.modify_time <= cutoff)
            return len(ended) == len(allocs), ended
    gone = tuple(alloc.id for alloc in allocs if is_alloc_garbage(state, alloc, cutoff, now))
    return len(gone) == len(allocs), gone


def _is_job_garbage(state: Snapshot, job: Job, cutoffs: Cutoffs, now: UnixNano) -> bool:
    is_collectable = job.stop or (job.type in (status.JOB_BATCH, status.JOB_SYSBATCH) and not job.is_template)
    if not is_collectable or job.status != status.JOB_DEAD or job.submit_time > cutoffs.job:
        return False
    if any(version.version_tag is not None for version in state.job_versions.where("job", job.key)):
        return False
    evals = state.evals.where("job", job.key)
    if not all(is_eval_terminal(one) and one.modify_time <= cutoffs.job for one in evals):
        return False
    return all(is_alloc_garbage(state, alloc, cutoffs.job, now) for alloc in state.allocs_of_job(*job.key))


def _deployments(state: Snapshot, cutoffs: Cutoffs) -> tuple[str, ...]:
    return tuple(
        sorted(
            deployment.id
            for deployment in state.deployments.values()
            if not is_deployment_active(deployment)
            and deployment.modify_time <= cutoffs.deployment
            and all(is_terminal(alloc) for alloc in state.allocs.where("deployment", deployment.id))
        )
    )


def _nodes(state: Snapshot, cutoffs: Cutoffs) -> tuple[str, ...]:
    return tuple(
        sorted(
            node.id
            for node in state.nodes.values()
            if node.status == status.NODE_DOWN
            and node.status_updated_at * SECOND <= cutoffs.node
            and all(is_terminal(alloc) for alloc in state.allocs_of_node(node.id))
        )
    )


def _chunks(ids: Iterable[T]) -> Iterator[tuple[T, ...]]:
    rest = tuple(ids)
    for start in range(0, len(rest), BATCH):
        yield rest[start : start + BATCH]
