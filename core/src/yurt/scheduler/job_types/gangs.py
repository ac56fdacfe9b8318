"""Gangs: groups with a minimum number of members that must run together, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.sdk.value import replace
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_gang_member


def placeable_text(placeable: int, required: str) -> str:
    """The number of placeable members as a text: `1 of 5 finds room`, `4 of 5 find room`."""
    return f"{placeable} of {required} {'finds' if placeable == 1 else 'find'} room"


class GangMinimums(NamedTuple):
    """What a plan requires for its gangs, by group."""

    accepted: Mapping[str, int]
    """The placements that the plan check must accept."""
    members: Mapping[str, int]
    """The members after the plan, which `apply` counts: the minimum, or all of a gang that goes on with fewer."""


NO_MINIMUMS: Final = GangMinimums({}, {})


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
            members, least = self._members(group, draft) + placed, self._least(group, draft)
            if members < least:
                text = placeable_text(members, f"the {least} that must run together")
                self.broken[group.name] = replace(draft.failed[group.name], gang=text)
                is_new = True
        return is_new

    def minimums(self, draft: PlanDraft) -> GangMinimums:
        """The minimums of each gang with placements."""
        members_placed = self._placed_gangs(draft)
        if not members_placed:
            return NO_MINIMUMS
        placed = Counter(members_placed)
        accepted, members = dict[str, int](), dict[str, int]()
        for group in self._groups(placed):
            name, least, present = group.name, self._least(group, draft), self._members(group, draft)
            # A gang may run with fewer members while others wait, but not while members failed: they would be left out.
            assert name not in draft.failed or least - present <= placed[name], (name, "below its minimum")
            if least > present:
                accepted[name] = least - present
            if (after := min(least, present + placed[name])) > 0:
                members[name] = after
        return GangMinimums(accepted, members)

    def _placed_gangs(self, draft: PlanDraft) -> list[str]:
        """The group of each placement, for groups that are gangs or were gangs in an earlier version."""
        job = self._context.job
        # Almost no job has a gang, and a new one has no earlier versions: nothing is counted for those.
        if job is None or not (job.version or any(group.gang is not None for group in job.task_groups)):
            return []
        own = {group.name for group in job.task_groups if group.gang is not None}
        placed = draft.placements
        return [each.task_group for each in placed if each.task_group in own or each.job_version != job.version]

    def _groups(self, names: Container[str]) -> list[TaskGroup]:
        job = self._context.job
        return [group for group in job.task_groups if group.name in names] if job is not None else []

    def _least(self, group: TaskGroup, draft: PlanDraft) -> int:
        """The number of members that must run together; 0 without a gang.

        While canaries try a version, others are placed by the version before, which may have another minimum.
        """
        context, job = self._context, self._context.job
        if job is None or not job.version:
            return group.least
        older = {each.job_version for each in draft.placements if each.task_group == group.name} - {job.version}
        versions = (context.snapshot.version(job.namespace, job.id, version) for version in sorted(older))
        groups = (version.group(group.name) for version in versions if version is not None)
        return min(group.count, max([group.least, *(each.least for each in groups if each is not None)]))

    def _members(self, group: TaskGroup, draft: PlanDraft) -> int:
        """The number of members apart from new ones: those that continue and those that have finished."""
        stopped = draft.stopped_ids()
        return sum(
            1
            for alloc in self._context.allocs
            if alloc.task_group == group.name and alloc.id not in stopped and is_gang_member(alloc, self._context.job)
        )
