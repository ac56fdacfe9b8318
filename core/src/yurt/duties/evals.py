"""Making evaluations: for a job, for the jobs of a node, for what clients report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.questions import is_client_terminal, is_for_node

SYSTEM_TYPES = (status.JOB_SYSTEM, status.JOB_SYSBATCH)


class Mint(NamedTuple):
    """What an evaluation needs from outside: the time, and fresh ids."""

    now: UnixNano
    new_id: Callable[[], str]


def evaluation_of(job: Job, trigger: str, mint: Mint, *, priority: int = 0) -> Evaluation:
    """A pending evaluation of the job; `priority` 0 means the job's."""
    return Evaluation(
        id=mint.new_id(),
        namespace=job.namespace,
        priority=priority or job.priority,
        type=job.type,
        triggered_by=trigger,
        job_id=job.id,
        job_modify_index=job.modify_index,
        status=status.EVAL_PENDING,
        create_time=mint.now,
        modify_time=mint.now,
    )


def asked_evaluation(key: tuple[str, str], trigger: str, mint: Mint, *, priority: int = 0) -> Evaluation:
    """A pending evaluation of a job as `apply` will find it: it takes the type and, for 0, the priority from there."""
    namespace, job_id = key
    return Evaluation(
        id=mint.new_id(),
        namespace=namespace,
        priority=priority,
        triggered_by=trigger,
        job_id=job_id,
        status=status.EVAL_PENDING,
        create_time=mint.now,
        modify_time=mint.now,
    )


def evaluations_of(jobs: Iterable[Job], trigger: str, mint: Mint) -> tuple[Evaluation, ...]:
    """One evaluation for each different job, in a fixed order."""
    unique = {job.key: job for job in jobs}
    return tuple(evaluation_of(unique[key], trigger, mint) for key in sorted(unique))


def evals_for_node(state: Snapshot, node: Node, mint: Mint, *, trigger: str) -> tuple[Evaluation, ...]:
    """One evaluation per job with allocations on the node, and one per system job that the node is for."""
    jobs: dict[tuple[str, str], Job] = {}
    for alloc in state.allocs_of_node(node.id):
        if is_client_terminal(alloc):
            continue
        job = state.jobs.get((alloc.namespace, alloc.job_id)) or alloc.job
        if job is not None:
            jobs[job.key] = job
    for job in system_jobs(state):
        if is_for_node(job, node):
            jobs[job.key] = job
    index = node.modify_index
    made = evaluations_of(jobs.values(), trigger, mint)
    return tuple(replace(evaluation, node_id=node.id, node_modify_index=index) for evaluation in made)


def system_jobs(state: Snapshot) -> tuple[Job, ...]:
    """Jobs that run on every fitting node, stopped ones and templates left out."""
    found = state.jobs.where("system", "system")
    return tuple(job for job in found if not job.stop and not job.is_template)
