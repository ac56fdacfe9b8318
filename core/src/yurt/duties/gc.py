"""Garbage collection: terminal objects that are old enough and unreferenced by live ones (invariant D9).

A state may hold millions of rows, and one job a hundred thousand of them. So a search
yields a step for each row that it examines: a collectable object, or None; the caller lets other tasks run between
slices of steps. The state changes meanwhile: `Garbage` gathers the found objects in small batches, and turns those
that the newest state still lets go into commands. A command is based on the jobs, nodes and deployments whose end it
relies on: if one of them has changed before it is applied, nothing is deleted, and the next round searches again.

An allocation is deleted before its evaluation, or in the same command: the search finds it only by its evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import msgspec

from yurt.fsm.basis import expectation
from yurt.sdk.value import UnixNano, Value
from yurt.state import Snapshot
from yurt.state.persistent_table import Table
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import (
    AnyCommand,
    DeleteDeployments,
    DeleteEvaluations,
    DeleteHostVolume,
    DeleteJobs,
    DeleteNodes,
    Expectation,
)
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.predicates import is_deployment_active, is_eval_terminal, is_terminal

K = TypeVar("K", str, JobKey)
V = TypeVar("V")

BATCH = 200
"""Objects deleted by one command: bounds the size of a log entry and the time its application blocks the loop."""
ORDERED_MAX = 4_096
"""Up to this number of rows, a table or an index entry is read in the order of its keys, so that a repeated history of
a small cluster makes the same commands. Sorting a million keys would hold up the event loop."""
SECOND = 1_000_000_000


class Cutoffs(Value):
    """Objects last changed before these times (unix ns) are old enough."""

    eval: UnixNano
    batch_eval: UnixNano
    job: UnixNano
    node: UnixNano
    deployment: UnixNano


class Dead(msgspec.Struct, frozen=True):
    """A job to delete."""

    key: JobKey


Found: TypeAlias = "Dead | Allocation | Evaluation | Deployment | Node"
Step: TypeAlias = "Found | None"
"""The result of examining one more row."""


def dead_jobs(state: Snapshot, cutoffs: Cutoffs, now: UnixNano) -> Iterator[Step]:
    """The jobs to delete with their remains: batch jobs are kept complete until then."""
    for job in _rows_of(state.jobs):
        if not _is_over(state, job, cutoffs):
            yield None
            continue
        for is_kept in _holds(state, job, cutoffs, now):
            yield None
            if is_kept:
                break
        else:
            yield Dead(job.key)


def orphan_steps(state: Snapshot, keys: Iterable[JobKey]) -> Iterator[Step]:
    """The allocations and evaluations of deleted jobs.

    A batch job that came to life meanwhile keeps its allocations: without them it would run again (invariant D4).
    """
    for key in keys:
        if key in state.jobs:
            yield None
            continue
        for alloc in _rows_where(state.allocs, "job", key):
            yield alloc if is_terminal(alloc) else None
        for evaluation in _rows_where(state.evals, "job", key):
            yield evaluation if is_eval_terminal(evaluation) else None


def collect(state: Snapshot, cutoffs: Cutoffs, now: UnixNano) -> Iterator[Step]:
    """All collectable objects other than jobs."""
    for evaluation in _rows_of(state.evals):
        yield from _eval_garbage(state, evaluation, cutoffs, now)
    for deployment in _rows_of(state.deployments):
        yield from _deployment_garbage(state, deployment, cutoffs)
    for node in _rows_of(state.nodes):
        yield from _node_garbage(state, node, cutoffs)


class Garbage:
    """Collectable objects, up to the number that one command deletes.

    `is_left_behind`: allocations and evaluations go because their jobs are gone, not because they are old.
    """

    def __init__(self, cutoffs: Cutoffs, now: UnixNano, *, is_left_behind: bool = False) -> None:
        self._cutoffs = cutoffs
        self._now = now
        self._is_left_behind = is_left_behind
        self._found: dict[type[Found], list[Found]] = {}

    def of_left_behind(self) -> Garbage:
        """An empty collector for the remains of deleted jobs."""
        return Garbage(self._cutoffs, self._now, is_left_behind=True)

    def add(self, found: Step) -> bool:
        """Add a collectable object; True when the batch is full, so that `commands` must be called next."""
        if found is None:
            return False
        kind: type[Found] = Evaluation if isinstance(found, Allocation) else type(found)
        kept = self._found.setdefault(kind, [])
        assert len(kept) < BATCH, (kind.__name__, "`commands` is asked for before more is added")
        kept.append(found)
        return len(kept) >= BATCH

    def commands(self, state: Snapshot) -> Iterator[AnyCommand]:
        """Commands, one per kind, that delete the objects added since the last call if they are still collectable."""
        found, self._found = self._found, {}
        for kept in found.values():
            yield from self._commands(state, kept)

    def _commands(self, state: Snapshot, found: list[Found]) -> Iterator[AnyCommand]:
        jobs = [one.key for one in found if isinstance(one, Dead) and self._is_still_over(state, one.key)]
        if jobs:
            yield DeleteJobs(keys=tuple(sorted(jobs)), based_on=_rows(state, "jobs", jobs))
        deployments = [one.id for one in found if isinstance(one, Deployment)]
        if deployments:
            basis = _rows(state, "deployments", deployments)
            yield DeleteDeployments(deployment_ids=tuple(sorted(deployments)), based_on=basis)
        nodes = [one.id for one in found if isinstance(one, Node) and _is_lost(state.nodes.get(one.id), self._cutoffs)]
        if nodes:
            yield from _volumes_of(state, sorted(nodes), self._now)
            yield DeleteNodes(node_ids=tuple(sorted(nodes)), based_on=_rows(state, "nodes", nodes))
        allocs = [one.id for one in found if isinstance(one, Allocation) and self._may_alloc_go(state, one.id)]
        going = Counter(state.allocs[alloc_id].eval_id for alloc_id in allocs)
        evals = [
            one.id
            for one in found
            if isinstance(one, Evaluation) and self._may_eval_go(state, one, going=going[one.id])
        ]
        assert len(allocs) + len(evals) <= BATCH, (len(allocs), len(evals), "a command stays small (A9)")
        if allocs or evals:
            keys = {(one.namespace, one.job_id) for one in found if isinstance(one, Evaluation | Allocation)}
            yield DeleteEvaluations(
                eval_ids=tuple(sorted(evals)), alloc_ids=tuple(sorted(allocs)), based_on=_rows(state, "jobs", keys)
            )

    def _is_still_over(self, state: Snapshot, key: JobKey) -> bool:
        job = state.jobs.get(key)
        return job is not None and _is_over(state, job, self._cutoffs)

    def _may_alloc_go(self, state: Snapshot, alloc_id: str) -> bool:
        alloc = state.allocs.get(alloc_id)
        if alloc is None:
            return False
        if self._is_left_behind:
            return is_terminal(alloc) and (alloc.namespace, alloc.job_id) not in state.jobs
        evaluation = state.evals.get(alloc.eval_id)
        return evaluation is not None and _may_alloc_go(state, alloc, evaluation, self._cutoffs, now=self._now)

    def _may_eval_go(self, state: Snapshot, evaluation: Evaluation, *, going: int) -> bool:
        """Whether the evaluation is collectable when this many of its allocations are."""
        if self._is_left_behind:
            return (evaluation.namespace, evaluation.job_id) not in state.jobs
        return state.allocs.count_where("eval", evaluation.id) == going


def _rows_of(table: Table[K, V]) -> Iterable[V]:
    return table.rows(sorted(table.keys())) if len(table) <= ORDERED_MAX else table.values()


def _rows_where(table: Table[K, V], column: str, value: Hashable) -> Iterable[V]:
    if table.count_where(column, value) <= ORDERED_MAX:
        return table.where(column, value)
    return table.each_where(column, value)


def _rows(state: Snapshot, table: str, keys: Iterable[Any]) -> tuple[Expectation, ...]:
    return tuple(expectation(state, table, key) for key in sorted(keys))


def _volumes_of(state: Snapshot, node_ids: Iterable[str], now: UnixNano) -> Iterator[AnyCommand]:
    """The host volumes of deleted nodes, if the operator permits it (`gc_volumes_on_node_gc`)."""
    for node_id in node_ids:
        if state.nodes[node_id].gc_volumes_on_node_gc:
            for volume in sorted(state.host_volumes.where("node", node_id), key=lambda each: each.id):
                basis = _rows(state, "nodes", (node_id,))
                yield DeleteHostVolume(namespace=volume.namespace, id=volume.id, now=now, based_on=basis)


def is_alloc_garbage(state: Snapshot, alloc: Allocation, cutoff: UnixNano, now: UnixNano) -> bool:
    """Whether the allocation is terminal, old, and not needed for rescheduling."""
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


def _eval_garbage(state: Snapshot, evaluation: Evaluation, cutoffs: Cutoffs, now: UnixNano) -> Iterator[Step]:
    """The evaluation's collectable allocations, then the evaluation if all of them are collectable."""
    if not is_eval_terminal(evaluation) or evaluation.modify_time > _eval_cutoff(evaluation, cutoffs):
        yield None
        return
    is_whole = True
    for alloc in _rows_where(state.allocs, "eval", evaluation.id):
        may_go = _may_alloc_go(state, alloc, evaluation, cutoffs, now=now)
        is_whole = is_whole and may_go
        yield alloc if may_go else None
    yield evaluation if is_whole else None


def _may_alloc_go(
    state: Snapshot, alloc: Allocation, evaluation: Evaluation, cutoffs: Cutoffs, *, now: UnixNano
) -> bool:
    """Whether an old evaluation's allocation is collectable; a batch job keeps those of its present run while it
    exists."""
    cutoff = _eval_cutoff(evaluation, cutoffs)
    if _is_batch(evaluation):
        job = state.jobs.get((evaluation.namespace, evaluation.job_id))
        if job is not None and not (job.status == status.JOB_DEAD and job.stop):
            is_earlier = alloc.job is not None and alloc.job.create_index < job.create_index
            return is_earlier and is_terminal(alloc) and alloc.modify_time <= cutoff
    return is_alloc_garbage(state, alloc, cutoff, now)


def _is_batch(evaluation: Evaluation) -> bool:
    return evaluation.type in (status.JOB_BATCH, status.JOB_SYSBATCH)


def _eval_cutoff(evaluation: Evaluation, cutoffs: Cutoffs) -> UnixNano:
    return cutoffs.batch_eval if _is_batch(evaluation) else cutoffs.eval


def _is_over(state: Snapshot, job: Job, cutoffs: Cutoffs) -> bool:
    """Whether the job has been dead for long enough and has no tagged version."""
    is_collectable = job.stop or (job.type in (status.JOB_BATCH, status.JOB_SYSBATCH) and not job.is_template)
    if not is_collectable or job.status != status.JOB_DEAD or job.submit_time > cutoffs.job:
        return False
    return all(version.version_tag is None for version in state.job_versions.where("job", job.key))


def _holds(state: Snapshot, job: Job, cutoffs: Cutoffs, now: UnixNano) -> Iterator[bool]:
    """For each evaluation and allocation of the job, whether it prevents the job's collection."""
    for evaluation in state.evals.each_where("job", job.key):
        yield not is_eval_terminal(evaluation) or evaluation.modify_time > cutoffs.job
    for alloc in state.allocs.each_where("job", job.key):
        yield not is_alloc_garbage(state, alloc, cutoffs.job, now)


def _deployment_garbage(state: Snapshot, deployment: Deployment, cutoffs: Cutoffs) -> Iterator[Step]:
    is_over = not is_deployment_active(deployment) and deployment.modify_time <= cutoffs.deployment
    return _when_unused(deployment, state.allocs.each_where("deployment", deployment.id), is_over=is_over)


def _node_garbage(state: Snapshot, node: Node, cutoffs: Cutoffs) -> Iterator[Step]:
    return _when_unused(node, state.allocs.each_where("node", node.id), is_over=_is_lost(node, cutoffs))


def _when_unused(found: Deployment | Node, allocs: Iterable[Allocation], *, is_over: bool) -> Iterator[Step]:
    """The expired objects without live allocations."""
    if not is_over:
        yield None
        return
    for alloc in allocs:
        yield None
        if not is_terminal(alloc):
            return
    yield found


def _is_lost(node: Node | None, cutoffs: Cutoffs) -> bool:
    """Whether the node has been down for long enough."""
    return node is not None and node.status == status.NODE_DOWN and node.status_updated_at * SECOND <= cutoffs.node
