"""Whether an attempt at a blocked evaluation would find the job as the last one has left it."""

from __future__ import annotations

from functools import partial

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.reconcile.classify import is_abandoned
from yurt.scheduler.reconcile.deployments import is_promoted
from yurt.scheduler.reconcile.update_kind import is_current
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.predicates import is_of_version, is_terminal
from yurt.structs.status import CLIENT_FAILED, DESIRED_RUN, JOB_SYSBATCH, JOB_SYSTEM


def has_changed(context: AttemptContext, job: Job) -> bool:
    """Whether the job, its deployment, its allocations or their nodes have changed since the last attempt, or
    allocations of older versions are left: their stops free capacity for the new version.

    While a deployment tries canaries, failed allocations of the version before are replaced in that version, which may
    ask for less than the newest one.

    Nodes without an allocation of the job matter to system jobs alone: no other is placed while the quota is full.
    """
    state, seen = context.snapshot, context.evaluation.snapshot_index
    deployment = state.latest_deployment(job.namespace, job.id)
    if job.modify_index > seen or (deployment is not None and deployment.modify_index > seen):
        return True
    is_rolled_out = any(group.update is not None and group.update.max_parallel > 0 for group in job.task_groups)
    if is_rolled_out and (deployment is None or not is_of_version(deployment, job)):
        return True  # an attempt begins a deployment
    if deployment is not None and not all(map(is_promoted, deployment.task_groups.values())):
        return True
    if job.type in (JOB_SYSTEM, JOB_SYSBATCH) and max(state.nodes.index, state.host_volumes.index) > seen:
        return True
    return any(map(partial(_may_change, context, job), context.allocs))


def _may_change(context: AttemptContext, job: Job, alloc: Allocation) -> bool:
    """Whether an allocation or its node has changed since the last attempt, or an attempt may change it: it is of
    another version or registration, it failed and may be rescheduled by now, or it is to stop on a lost node."""
    seen = context.evaluation.snapshot_index
    if alloc.modify_index > seen:
        return True
    node = context.snapshot.nodes.get(alloc.node_id)
    if is_terminal(alloc):
        is_failed = alloc.client_status == CLIENT_FAILED and alloc.desired_status == DESIRED_RUN
        return is_failed or is_abandoned(alloc, node, now=context.now)
    return node is None or node.modify_index > seen or not is_current(alloc, job)
