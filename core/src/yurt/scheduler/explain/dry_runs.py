"""Dry runs: attempts at a job, unchanged or with edits applied. Their results are not stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from yurt.scheduler.attempts import lay_over
from yurt.scheduler.capacity.limits import LimitsOf, no_limits
from yurt.scheduler.explain.edits import apply_edits, edited_node
from yurt.scheduler.explain.finished_attempt import FinishedAttempt
from yurt.scheduler.explain.freed_capacity import freed_capacity, is_live
from yurt.scheduler.explain.nearest import nearest, smallest
from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.generic import GenericAttempt
from yurt.scheduler.job_types.system import SystemAttempt
from yurt.sdk.value import UnixNano
from yurt.state import Tables
from yurt.state.store import Snapshot
from yurt.structs.explain.explanation import SmallestChange, SuggestedEdit
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Placement, Plan
from yurt.structs.status import JOB_SYSBATCH, JOB_SYSTEM


class DryRun(NamedTuple):
    """The result of an attempt."""

    attempt: FinishedAttempt
    plan: Plan

    def placed(self, group: str) -> list[Placement]:
        """The group's placements in order."""
        return [placement for placement in self.plan.placements if placement.task_group == group]

    def unplaced(self, group: str) -> int:
        """The number of the group's unplaced allocations."""
        return self.attempt.draft.queued.get(group, 0)

    def running(self, group: str) -> int:
        """The number of the group's allocations that run and continue."""
        stopped = {stop.id for stop in self.attempt.draft.stops}
        return sum(
            1
            for alloc in self.attempt.context.allocs
            if alloc.task_group == group and alloc.id not in stopped and is_live(alloc)
        )

    def served(self, group: str) -> int:
        """The number of nodes that have or would get the desired version of a system job's group."""
        return self.running(group) + len(self.placed(group)) - len(self.attempt.draft.replacing.get(group, ()))

    def change_for_one_more(self, group: str) -> SmallestChange | None:
        """The smallest change for one more allocation of an unplaced group."""
        attempt = self.attempt
        placer = attempt.placers.get(group)
        if placer is None or group not in attempt.draft.failed or attempt.draft.failed[group].quota_exhausted:
            return None
        with freed_capacity(attempt, placer) as (blockers, _):
            return smallest(blockers, nearest(blockers, blockers.nodes & (blockers.count > 0)))


class DryRuns:
    """The inputs of dry runs, each of which starts from the same state."""

    def __init__(self, snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int, limits: LimitsOf = no_limits) -> None:
        self.snapshot = snapshot
        self.job = job
        self._now = now
        self._seed = seed
        self._limits = limits

    @cached_property
    def unchanged(self) -> DryRun:
        """The dry run of the unchanged job."""
        return self.run()

    def run(self, edits: Sequence[SuggestedEdit] = (), *, group: str = "") -> DryRun:
        """Attempt the job with edits of its group and of nodes applied."""
        job = apply_edits(self.job, group, edits)
        snapshot, evaluation = lay_over(_with_nodes(self.snapshot, edits), job, now=self._now, seed=self._seed)
        ids = SeededIds(self._seed, evaluation.id, "0")
        context = AttemptContext.of(snapshot, evaluation, now=self._now, ids=ids, seed=self._seed, limits=self._limits)
        is_system = evaluation.type in (JOB_SYSTEM, JOB_SYSBATCH)
        attempt = SystemAttempt(context) if is_system else GenericAttempt(context)
        plan, _ = attempt.run()
        return DryRun(attempt, plan)


def _with_nodes(snapshot: Snapshot, edits: Sequence[SuggestedEdit]) -> Snapshot:
    """The state with the edits of nodes applied."""
    nodes: dict[str, Node] = {}
    for edit in edits:
        if edit.node_id:
            nodes[edit.node_id] = edited_node(nodes.get(edit.node_id) or snapshot.nodes[edit.node_id], edit)
    if not nodes:
        return snapshot
    changed = snapshot.edit(snapshot.index + 1)
    for node in nodes.values():
        changed.put(Tables.nodes, node.id, node)
    return changed.commit()
