"""Gangs: groups with a minimum number of members that must run together, or none."""

from __future__ import annotations

from collections import Counter

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.sdk.value import replace
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_gang_member


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

    def members_after(self, draft: PlanDraft) -> dict[str, int]:
        """The number of members that each gang with placements must have after the plan, for `apply`.

        It is the gang's minimum, or all members of a gang that goes on with fewer.
        """
        job = self._context.job
        placed = Counter(placement.task_group for placement in draft.placements)
        groups = [group for group in job.task_groups if group.gang is not None] if job is not None else []
        return {g.name: min(g.least, self._members(g, draft) + placed[g.name]) for g in groups if placed[g.name]}

    def _members(self, group: TaskGroup, draft: PlanDraft) -> int:
        """The number of members apart from new ones: those that continue and those that have finished."""
        stopped = draft.stopped_ids()
        return sum(
            1
            for alloc in self._context.allocs
            if alloc.task_group == group.name and alloc.id not in stopped and is_gang_member(alloc, self._context.job)
        )
