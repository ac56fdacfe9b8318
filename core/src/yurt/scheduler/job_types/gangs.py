"""Gangs: groups with a minimum number of members that must run together, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_canary, is_gang_member


def placeable_text(placeable: int, required: str) -> str:
    """The number of placeable members as a text: `1 of 5 finds room`, `4 of 5 find room`."""
    return f"{placeable} of {required} {'finds' if placeable == 1 else 'find'} room"


class GangShortage(NamedTuple):
    """The members that a gang has and those that it needs; 0 and 0 if enough run, or for a group that is no gang."""

    members: int = 0
    least: int = 0

    @property
    def missing(self) -> int:
        """The number of members that must be placed at once."""
        return self.least - self.members

    def text(self, placed: int) -> str:
        """What an attempt says that could place some of the missing members; empty if none is missing."""
        return placeable_text(self.members + placed, f"the {self.least} that must run together") if self.missing else ""


def gang_shortage(job: Job, group: TaskGroup, allocs: Iterable[Allocation]) -> GangShortage:
    """The shortage of a gang without canaries, of whose allocations none has an older version and none is to stop."""
    if not group.least:
        return GangShortage()
    members = sum(alloc.task_group == group.name and is_gang_member(alloc, job) for alloc in allocs)
    return GangShortage(members, group.least) if members < group.least else GangShortage()


class GangMinimums(NamedTuple):
    """What a plan requires for its gangs, by group."""

    accepted: Mapping[str, int]
    """The placements that the plan check must accept."""
    members: Mapping[str, int]
    """The members after the plan, which `apply` counts: the minimum, or all of a gang that goes on with fewer."""


class _GangPart(NamedTuple):
    """The canaries of a group, or its other members: those that stay, those placed, and the number that must run
    together."""

    members: int
    placed: int
    least: int


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
            for part in self._parts(group, draft):
                if part.members + part.placed < part.least:
                    text = GangShortage(part.members, part.least).text(part.placed)
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
            name, parts = group.name, self._parts(group, draft)
            # A gang may run with fewer members while others wait, but not while members failed: they would be left out.
            is_whole = all(part.least <= part.members + part.placed for part in parts)
            assert name not in draft.failed or is_whole, (name, "below its minimum")
            if missing := sum(max(0, part.least - part.members) for part in parts):
                accepted[name] = missing
            present, least = self._members(group, draft), max(part.least for part in parts)
            if (after := min(least, sum(present.values()) + placed[name])) > 0:
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

    def _parts(self, group: TaskGroup, draft: PlanDraft) -> list[_GangPart]:
        """The group's canaries and its other members, as far as the plan places some; the latter if it places none.

        Canaries are a gang of their own until their promotion. While they try a version, others are placed by the
        version before, which may have another minimum.
        """
        context, job = self._context, self._context.job
        assert job is not None, "an attempt without a job places nothing"
        versions: dict[bool, list[int]] = {}
        for each in draft.placements:
            if each.task_group == group.name:
                is_trial = each.deployment_status is not None and each.deployment_status.canary
                versions.setdefault(is_trial, []).append(each.job_version)
        members, parts = self._members(group, draft), []
        for is_trial, placed in sorted((versions or {False: []}).items()):
            older = (context.snapshot.version(job.namespace, job.id, each) for each in {*placed} - {job.version})
            groups = [each.group(group.name) for each in older if each is not None]
            groups += [group] if job.version in placed or not placed else []
            least = min(group.count, max((each.least for each in groups if each is not None), default=0))
            parts.append(_GangPart(members[is_trial], len(placed), least))
        return parts

    def _members(self, group: TaskGroup, draft: PlanDraft) -> Counter[bool]:
        """The numbers of members apart from new ones, those that continue or have finished, by whether they are
        canaries."""
        stopped = draft.stopped_ids()
        return Counter(
            is_canary(alloc)
            for alloc in self._context.allocs
            if alloc.task_group == group.name and alloc.id not in stopped and is_gang_member(alloc, self._context.job)
        )
