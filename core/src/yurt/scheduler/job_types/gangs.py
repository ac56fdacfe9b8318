"""Gangs: groups with a minimum number of members that must run together, or none."""

from __future__ import annotations

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.reconcile.replacements import has_completed
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_terminal
from yurt.structs.status import JOB_BATCH


def placeable_text(placeable: int, required: str) -> str:
    """The number of placeable members as a text: `1 of 5 finds room`, `4 of 5 find room`."""
    return f"{placeable} of {required} {'finds' if placeable == 1 else 'find'} room"


class Gangs:
    """The gangs of one attempt; `broken` are those with too few members, with the reason."""

    def __init__(self, context: AttemptContext) -> None:
        self.broken: dict[str, AllocationMetric] = {}
        self._context = context

    def find_broken(self, job: Job, draft: PlanDraft) -> bool:
        """Record gangs with too few members; returns whether there are new ones, which require another round."""
        is_new = False
        for group in job.task_groups:
            if group.name not in draft.failed or group.name in self.broken:
                continue
            # Only groups that failed: a gang of which all wanted members were placed is whole by its own count.
            placed = sum(1 for placement in draft.placements if placement.task_group == group.name)
            members = self._members(group, draft) + placed
            if members < group.least:
                text = placeable_text(members, f"the {group.least} that must run together")
                self.broken[group.name] = replace(draft.failed[group.name], gang=text)
                is_new = True
        return is_new

    def least_accepted(self, draft: PlanDraft) -> dict[str, int]:
        """The minimum of accepted placements per gang, for the plan check."""
        job = self._context.job
        groups = [group for group in job.task_groups if group.gang is not None] if job is not None else []
        if not groups:
            return {}
        placed = [placement.task_group for placement in draft.placements]
        least = {g.name: g.least - self._members(g, draft) for g in groups if g.name in placed}
        # A gang may run with fewer members while others wait, but not while members failed: those would be left out.
        short = {name for name, number in least.items() if number > placed.count(name)}
        assert short.isdisjoint(draft.failed), (short, "gangs that failed keep their minimum or are left out")
        return {name: number for name, number in least.items() if number > 0}

    def _members(self, group: TaskGroup, draft: PlanDraft) -> int:
        """The number of members apart from new ones: those that continue and those that have finished."""
        stopped = draft.stopped_ids()
        return sum(
            1
            for alloc in self._context.allocs
            if alloc.task_group == group.name
            and alloc.id not in stopped
            and (not is_terminal(alloc) or self._is_finished(alloc))
        )

    def _is_finished(self, alloc: Allocation) -> bool:
        """Whether an allocation has completed in this version of a batch job."""
        job = self._context.job
        is_own = job is not None and alloc.job is not None and alloc.job.version == job.version
        return is_own and self._context.evaluation.type == JOB_BATCH and has_completed(alloc)
