"""A check whether an evaluation still waits for room on nodes, in place of an attempt.

Each allocation that ends unblocks all evaluations that can use the class of its node, and the room that it leaves is
too small for most of them, or taken by the first. An attempt examines all nodes of the cluster; this check examines
those on which something was freed since the last attempt, on which alone an attempt could place more.
"""

from __future__ import annotations

from collections.abc import Sequence

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import candidates, feasibility, feasible_candidates
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.unchanged import has_changed
from yurt.scheduler.placing.group_placer import group_ask
from yurt.scheduler.placing.preemption import is_allowed
from yurt.sdk.value import replace
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.status import JOB_BATCH, JOB_SERVICE, TRIGGER_QUEUED_ALLOCS


def still_blocked(context: AttemptContext, freed: Sequence[str]) -> Evaluation | None:
    """The blocked evaluation with the index of this state if no unplaced group fits on any freed node, or None.

    `freed` are the nodes on which something was freed since the last attempt, or which gained something.
    """
    evaluation, job = context.evaluation, context.job
    if job is None or job.stop or not _waits_for_nodes_alone(evaluation) or has_changed(context, job):
        return None
    view = ClusterView(context.snapshot)
    if _has_other_means(context, view, job):
        return None
    rows = [row for node_id in freed if (row := view.row(node_id)) is not None]
    for name in evaluation.failed_tg_allocs:
        group = job.group(name)
        # Volumes may be freed on all nodes at once.
        if group is None or group.volumes or _has_room(view, job, group, rows=rows):
            return None
    return replace(evaluation, snapshot_index=context.snapshot.index, modify_time=context.now)


def _waits_for_nodes_alone(evaluation: Evaluation) -> bool:
    return (
        evaluation.type in (JOB_SERVICE, JOB_BATCH)  # a system job has an evaluation for each node
        and bool(evaluation.failed_tg_allocs)
        and evaluation.triggered_by == TRIGGER_QUEUED_ALLOCS
        and not (evaluation.node_id or evaluation.quota_limit_reached)
        and not (evaluation.missing_non_node_resources or evaluation.annotate_plan)
        and evaluation.queued_allocations.keys() >= evaluation.failed_tg_allocs.keys()  # the second attempt counts them
    )


def _has_other_means(context: AttemptContext, view: ClusterView, job: Job) -> bool:
    """Whether an attempt may place allocations without free room: by preemption, by reclaim, or later in a queue."""
    pool = context.snapshot.node_pools.get(job.node_pool)
    has_queue = pool is not None and pool.batch_queue is not None
    return has_queue or is_allowed(view, job) or context.guarantees() is not None


def _has_room(view: ClusterView, job: Job, group: TaskGroup, *, rows: Sequence[int]) -> bool:
    """Whether a feasible one of some nodes has the CPU, memory and disk for an allocation, whatever else it needs."""
    usage = group_ask(view.snapshot, job, group).plain.usage
    found = [row for row in rows if not view.exhausted(row, usage)]
    if not found:
        return False
    feasible = feasibility(view.snapshot, job, group)
    mask = feasible_candidates(view.rows, job, candidates(view.rows, job), feasible)
    return any(mask[row] for row in found)
