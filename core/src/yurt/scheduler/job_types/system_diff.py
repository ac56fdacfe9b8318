"""Compares each node's allocations with a system job: stop, keep, update or place.

Each node that may take a group gets one allocation of it. An allocation is looked at by itself: its node decides
whether it stays, because a system job has no count that other nodes could fill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray, is_row_feasible
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.node_placement import GroupTargets
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.job_types.system_rollout import SystemRollout
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.alloc_names import alloc_name
from yurt.scheduler.reconcile.classify import (
    DISCONNECTING,
    EXPIRING,
    LOST,
    MIGRATE,
    RECONNECTING,
    classify,
    strategy_of,
)
from yurt.scheduler.reconcile.followups import followups
from yurt.scheduler.reconcile.results import PlacementRequest, StopRequest
from yurt.scheduler.reconcile.update_kind import is_current
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import DesiredUpdates
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.predicates import is_for_node, is_ready, is_terminal
from yurt.structs.queueing.requeue import has_done_its_work
from yurt.structs.status import (
    CLIENT_LOST,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    DESIRED_EVICT,
    DESIRED_RUN,
    DESIRED_STOP,
    JOB_SYSBATCH,
    NODE_READY,
    SERVER_TERMINAL,
    TRIGGER_MAX_DISCONNECT,
    ClientStatus,
    NotGiven,
)

COUNTERS: Final = DesiredUpdates.__struct_fields__
Counts = dict[str, dict[str, int]]
"""The `DesiredUpdates` counts by group."""


def stop(draft: PlanDraft, view: ClusterView, request: StopRequest) -> None:
    """Stop an allocation with the plan and free its resources."""
    draft.stops.append(request.as_plan())
    view.release(request.alloc)


def stop_live(context: AttemptContext, draft: PlanDraft, view: ClusterView, groups: frozenset[str]) -> Counts:
    """Stop all live allocations except those of these groups; returns the counts of each group."""
    counts: Counts = {}
    for alloc in context.allocs:
        if alloc.task_group not in groups and not is_terminal(alloc):
            counts.setdefault(alloc.task_group, dict.fromkeys(COUNTERS, 0))["stop"] += 1
            stop(draft, view, StopRequest(alloc, why.NOT_NEEDED))
    return counts


def _without_volumes(placer: GroupPlacer) -> tuple[BoolArray, ...]:
    """The nodes whose volumes the group cannot use.

    Those whose volume has a writer are refused when the allocation is placed: it waits for the writer's end.
    """
    if placer.volumes.is_used:
        placer.look_at_volumes(0)
    return tuple(mask for reason, mask in placer.volumes_refused.items() if not reason.is_passing)


class SystemDiff:
    """The comparison of the nodes with one system job."""

    def __init__(self, context: AttemptContext, job: Job, draft: PlanDraft, view: ClusterView) -> None:
        self._context = context
        self._job = job
        self._draft = draft
        self._view = view
        self.counts: Counts = {}
        self.placers: dict[str, GroupPlacer] = {}
        self.done: dict[str, int] = {}
        """The nodes on which a sysbatch job has ended, by group."""
        self._disconnected: list[tuple[Allocation, int]] = []
        """Allocations that become unknown, and their time limits."""

    def compare(self, rollout: SystemRollout) -> list[GroupTargets]:
        """Stop unwanted allocations, record retained ones, and return the requests for placements."""
        groups = self._job.task_groups
        desired = frozenset(group.name for group in groups if group.count > 0)
        self.counts = stop_live(self._context, self._draft, self._view, desired)
        for group in groups:
            self.counts.setdefault(group.name, dict.fromkeys(COUNTERS, 0))
            self._draft.queued[group.name] = 0
        return [self._diff_group(group, rollout) for group in groups if group.count > 0]

    def _diff_group(self, group: TaskGroup, rollout: SystemRollout) -> GroupTargets:
        """The targets of one group; its placer is retained for explanations."""
        job = self._job
        placer = self.placers[group.name] = GroupPlacer(self._view, job, group, seed=self._context.seed, own=())
        outside = _without_volumes(placer)
        open_rows = placer.candidates.mask & placer.feasible.mask
        for mask in outside:
            open_rows &= ~mask
        covered: set[str] = set()
        done: set[str] = set()
        outdated: list[Allocation] = []
        previous: dict[str, Allocation] = {}
        for alloc in sorted(self._context.allocs, key=lambda a: (a.create_index, a.id)):
            if alloc.task_group != group.name:
                continue
            if self._is_done(alloc):
                done.add(alloc.node_id)
            elif self._keep(group, alloc, outdated, outside):
                covered.add(alloc.node_id)
            elif not (alloc.desired_status in SERVER_TERMINAL and alloc.client_status not in CLIENT_TERMINAL):
                previous[alloc.node_id] = alloc
        # A node may have ended one allocation and run another: it is covered, and counts once.
        self.done[group.name] = len(done - covered)
        covered |= done
        counts = self.counts[group.name]
        destructive = rollout.updates(group, outdated, counts)
        assert len(destructive) <= len(outdated), (group.name, "only an outdated allocation is replaced")
        ids, name = self._view.rows.ids, alloc_name(job.name or job.id, group.name, 0)
        ordered = sorted(np.flatnonzero(open_rows).tolist(), key=ids.__getitem__)
        free = [row for row in ordered if ids[row] not in covered]
        assert len(set(free)) == len(free), (group.name, "one allocation a node")
        asked = [PlacementRequest(group.name, name, previous.get(ids[row])) for row in free]
        fresh = list(zip(free, rollout.with_canaries(group, asked), strict=True))
        rollout.begin(group, counts, replaced=len(destructive), new=len(fresh))
        return GroupTargets(placer, destructive, fresh)

    def _is_done(self, alloc: Allocation) -> bool:
        """Whether a sysbatch allocation of this version has ended or is stopping for good, so that its node gets no
        other one.

        The end of one that stops is decided already: what its client will report of it changes nothing.
        """
        if self._job.type != JOB_SYSBATCH or not is_current(alloc, self._job):
            return False
        if alloc.desired_status == DESIRED_EVICT:
            return has_done_its_work(alloc)
        if alloc.desired_status == DESIRED_STOP and alloc.desired_transition.migrate_disable_placement:
            return True
        is_stopping = alloc.desired_status == DESIRED_STOP and not alloc.desired_transition.reschedule
        is_ended = alloc.desired_status == DESIRED_RUN and alloc.client_status in CLIENT_TERMINAL
        return (is_stopping or is_ended) and alloc.client_status != CLIENT_LOST

    def _keep(
        self, group: TaskGroup, alloc: Allocation, outdated: list[Allocation], outside: Sequence[BoolArray]
    ) -> bool:
        """Decide about one allocation; returns whether its node needs no other one."""
        if alloc.client_status in CLIENT_TERMINAL or alloc.desired_status in SERVER_TERMINAL:
            return False
        job, node = self._job, self._context.snapshot.nodes.get(alloc.node_id)
        kind = classify(alloc, node, is_batch=job.type == JOB_SYSBATCH, now=self._context.now)
        counts = self.counts[group.name]
        if kind == MIGRATE:
            # On a ready node a user has stopped the allocation, and no other event would bring the next one.
            is_wanted = job.type != JOB_SYSBATCH or alloc.desired_transition.reschedule
            is_renewed = is_wanted and node is not None and is_ready(node)
            self._stop(alloc, why.MIGRATING if is_renewed else why.NODE_TAINTED)
            return not is_renewed
        if kind in (LOST, EXPIRING):
            self._stop(alloc, why.LOST, CLIENT_LOST)
            return False
        if kind == DISCONNECTING:
            self._disconnect(alloc)
            counts["disconnect"] += 1
            return True
        if kind == RECONNECTING:
            counts["reconnect"] += 1
            self._draft.change(alloc, append_state=(alloc.client_status, self._context.now))
        row = self._view.row(alloc.node_id)
        is_newest = is_current(alloc, job)
        if row is None or node is None or not self._suits(group, node, row=row, is_newest=is_newest):
            self._stop(alloc, why.NOT_NEEDED)
        elif not is_newest and node.status == NODE_READY and any(mask[row] for mask in outside):
            # The volumes of a node that is not ready are unavailable: the evaluation of its return decides.
            self._stop(alloc, why.NOT_NEEDED)
        elif is_newest or not is_ready(node):
            counts["ignore"] += 1
        else:
            outdated.append(alloc)
        return True

    def _suits(self, group: TaskGroup, node: Node, *, row: int, is_newest: bool) -> bool:
        """Whether an allocation may stay; other requirements of a new version are checked when it is placed."""
        return (
            is_for_node(self._job, node)
            if is_newest
            else is_row_feasible(self._context.snapshot, self._job, group, row)
        )

    def _stop(self, alloc: Allocation, description: str, client_status: ClientStatus | NotGiven = "") -> None:
        self.counts[alloc.task_group]["stop"] += 1
        stop(self._draft, self._view, StopRequest(alloc, description, client_status))

    def _disconnect(self, alloc: Allocation) -> None:
        self._draft.change(
            alloc,
            client_status=CLIENT_UNKNOWN,
            client_description=why.UNKNOWN,
            append_state=(CLIENT_UNKNOWN, self._context.now),
        )
        lost_after = strategy_of(alloc).lost_after
        if lost_after > 0:
            self._disconnected.append((alloc, self._context.now + lost_after))

    def follow_up(self) -> None:
        """Create evaluations for the time limits of unknown allocations."""
        made, eval_of = followups(
            self._job,
            self._disconnected,
            TRIGGER_MAX_DISCONNECT,
            ids=self._context.ids,
            parent=self._context.evaluation,
            now=self._context.now,
        )
        self._draft.results.followups.extend(made)
        for alloc, _ in self._disconnected:
            self._draft.change(alloc, followup_eval_id=eval_of[alloc.id])
