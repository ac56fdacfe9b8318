"""Latest starts that the queue guarantees: those of reserved jobs that no later job can pass.

A reservation alone is no guarantee: in a `fair_share` or `dynamic_priority` queue a job that comes later may be placed
before the reserved one. Only these starts are guaranteed:

- in a `fifo` queue those of all reserved jobs. The first starts when it is reserved; each other one then, or when those
  before it, each started at its own latest time, have run to their limits, whichever is later (`reservations`).
- in a `fair_share` queue that of the boosted job, which is first whatever tenants use, if it surely stays boosted until
  then (`stays_boosted`).

All else is left out rather than estimated: jobs behind one without a limit or without a computable start, jobs with
conditions that reservations do not know (a node that does not suit them, volumes, ports, quotas), and all jobs where
quotas have guarantees, since jobs within these come first. What remains can be late only for reasons from outside the
queue: lost or drained nodes, work that does not queue (services, system jobs), higher bands, and jobs that return to
their earlier place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from yurt.queue.backfill import stays_boosted
from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.constraints.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY
from yurt.scheduler.feasibility.masks import check_mask, checks_of
from yurt.sdk.value import seconds
from yurt.server.queueing.entries import QueueEntry
from yurt.server.queueing.order import could_ever_fit
from yurt.server.queueing.pool_view import PoolView
from yurt.server.queueing.reservations import ReleasedJob, Reservations
from yurt.state.quota_tree import has_guarantees
from yurt.structs import status
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_for_node, is_ready

MARGIN: Final = seconds(60)
"""The time for an evaluation and a plan, in addition to that in which the tasks of ended allocations stop."""


def latest_starts(
    view: PoolView, order: Sequence[Waiting], waiting: Mapping[JobKey, QueueEntry], now: int, *, region: str
) -> dict[JobKey, int]:
    """The latest starts of jobs that have a guaranteed one, in unix nanoseconds; `order`: the whole queue."""
    queue, state = view.queue, view.state
    if not order or queue.dynamic_priority is not None or has_guarantees(state, region):
        return {}
    if queue.fair_share is None:
        return _of_reservations(view, order, waiting, now)
    found = _of_reservations(view, order[:1], waiting, now)
    after, in_use, capacity = queue.fair_share.boost_after, view.boosted, view.capacity
    return {
        key: latest
        for key, latest in found.items()
        if stays_boosted(order, after, now=now, until=latest, in_use=in_use, capacity=capacity)
    }


def _of_reservations(
    view: PoolView, order: Sequence[Waiting], waiting: Mapping[JobKey, QueueEntry], now: int
) -> dict[JobKey, int]:
    """The latest starts of the reserved jobs of a fixed order."""
    found: dict[JobKey, int] = {}
    free, kept, stop = view.free_capacity(), Reservations(view, now, ()), _stop_time(view)
    ended = 0
    for job in order:
        entry = waiting[job.key]
        if free.has_capacity(entry.demands):
            if entry.evaluation.status == status.EVAL_BLOCKED:
                break  # Set aside: it may start at any time, before those behind it.
            if kept.permits(entry):
                kept.note_release(ReleasedJob(entry, tuple(free.plan(entry.demands))))
                continue
        elif not could_ever_fit(free, entry):
            break
        if len(kept.promises) >= max(1, view.queue.reservations):
            break
        kept.add(entry)
        promise = kept.promises[-1]
        if not (promise.start and promise.is_sure):
            break
        latest = max(promise.start, ended) + stop
        if _has_known_conditions(view, entry.job):
            found[job.key] = latest
        if not job.limit:
            break
        ended = max(ended, latest + job.limit)
    return found


def _stop_time(view: PoolView) -> int:
    """The time in nanoseconds between the end of an allocation by its limit and the use of its capacity by the next."""
    groups = (alloc.job.group(alloc.task_group) for alloc in view.running() if alloc.job is not None)
    return MARGIN + max((_stop_time_of(group) for group in groups if group is not None), default=0)


def _stop_time_of(group: TaskGroup) -> int:
    # Tasks stop in up to three steps, one after another: pre-start sidecars, main tasks and leaders, post-stop tasks.
    return group.shutdown_delay + sum(task.shutdown_delay + task.kill_timeout for task in group.tasks)


def _has_known_conditions(view: PoolView, job: Job) -> bool:
    """Whether any node of the pool with capacity would take the job, so that a reservation holds."""
    namespace = view.state.namespaces.get(job.namespace)
    if namespace is not None and namespace.quota:
        return False
    return all(_has_plain_conditions(job, group) and _suits_all(view, job, group) for group in job.task_groups)


def _has_plain_conditions(job: Job, group: TaskGroup) -> bool:
    constraints = [*job.constraints, *group.constraints, *(rule for task in group.tasks for rule in task.constraints)]
    networks = [*group.networks, *(network for task in group.tasks for network in task.resources.networks)]
    is_distinct = any(rule.operand in (DISTINCT_HOSTS, DISTINCT_PROPERTY) for rule in constraints)
    return not (is_distinct or group.volumes or any(network.reserved_ports for network in networks))


def _suits_all(view: PoolView, job: Job, group: TaskGroup) -> bool:
    """Whether each ready node of the pool passes the checks of a group."""
    state = view.state
    nodes = [node for node in state.nodes.values() if node.node_pool == view.pool and is_ready(node)]
    rows = [state.columns.rows[node.id] for node in nodes]
    if not all(is_for_node(job, node) for node in nodes):
        return False
    return all(bool(check_mask(state, check)[rows].all()) for check in checks_of(job, group))
