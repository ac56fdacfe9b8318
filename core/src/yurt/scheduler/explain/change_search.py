"""Search for a change that places allocations: grow the smallest change until it succeeds, then minimize it.

Capacity for one more allocation places none where all of a job or many of a group must run together, or where another
group of the job takes it first. So the search adds the smallest change for one more allocation, again and again. When
that takes too many steps, it sets every number to its limit. What places some is then minimized (`minimization`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from yurt.scheduler.explain.dry_runs import DryRun, DryRuns
from yurt.scheduler.explain.edits import joined, numbered, text_of, with_numbers
from yurt.scheduler.explain.minimal_change import amount_of, disk_min, least_of
from yurt.scheduler.explain.minimization import Edits, Minimizer
from yurt.sdk.value import replace
from yurt.structs.explain.explanation import AmountKind, GroupExplanation, SmallestChange, SuggestedEdit
from yurt.structs.job import TaskGroup
from yurt.structs.status import JOB_SYSBATCH, JOB_SYSTEM

ROUNDS_MAX = 32
"""The maximum number of rounds in which a change grows, when no single number suffices."""
LEAP_AFTER = 6
"""The number of rounds after which numbers are set to their limits."""
LEAPS_MAX = 6
"""The maximum number of shortages that are resolved one after another with numbers at their limits."""
TRIES_MAX, TRIES_MIN = 400, 60
"""The number of attempts to minimize a change: the first if attempts are short, the second if they are long."""
ALLOCATIONS_MAX = 200_000
"""The number of allocations placed by all attempts together from which TRIES_MIN applies."""


def with_places(dry_runs: DryRuns, made: GroupExplanation) -> GroupExplanation:
    """The explanation with a verified smallest change, and the number of allocations that it places."""
    change, group = made.smallest_change, dry_runs.job.group(made.name)
    if change is None or group is None:
        return made
    return replace(made, smallest_change=_ChangeSearch(dry_runs, made, group).search(change))


class _ChangeSearch:
    """The search for the change of one group, tested by attempts."""

    def __init__(self, dry_runs: DryRuns, made: GroupExplanation, group: TaskGroup) -> None:
        self._dry_runs = dry_runs
        self._made = made
        self._group = group

    def search(self, first: SmallestChange) -> SmallestChange:
        """The change, grown until it places allocations; unchanged if it never does."""
        change = first
        for number in range(ROUNDS_MAX):
            if number == LEAP_AFTER and (far := self._leap(change)) is not None:
                return far
            dry_run = self._run(change.edits)
            if self._places(dry_run):
                return self._reduced(change, dry_run)
            more = dry_run.change_for_one_more(self._made.name)
            if more is None:
                break
            change = _with_edits(more, joined(change.edits, more.edits))
        return first

    def _leap(self, change: SmallestChange) -> SmallestChange | None:
        """A change that places the gang, from numbers at their limits; None when even these do not suffice."""
        edits = change.edits
        for _ in range(LEAPS_MAX):
            edits = tuple(_farthest(self._group, edits))
            dry_run = self._run(edits)
            if self._places(dry_run):
                return self._reduced(_with_edits(change, edits), dry_run)
            more = dry_run.change_for_one_more(self._made.name)
            if more is None:
                break
            edits = joined(edits, more.edits)
        return None

    def _reduced(self, change: SmallestChange, dry_run: DryRun) -> SmallestChange:
        """The smallest change that places some of the group without taking capacity from other groups."""
        waiting = self._others_waiting(dry_run)

        def is_sufficient(edits: Edits) -> bool:
            run = self._run(edits)
            return self._places(run) > 0 and self._others_waiting(run) <= waiting

        tries = ALLOCATIONS_MAX // max(1, self._made.unplaced)
        minimizer = Minimizer(is_sufficient, tries=max(TRIES_MIN, min(TRIES_MAX, tries)))
        edits = minimizer.smallest(change.edits)
        if edits != change.edits:
            dry_run = self._run(edits)
            change = self._on_its_node(_with_edits(change, edits), dry_run)
        return replace(change, places=self._places(dry_run), is_proved=minimizer.is_proved)

    def _on_its_node(self, change: SmallestChange, dry_run: DryRun) -> SmallestChange:
        """The change restricted to the first node that took more than in the unchanged dry run."""
        placed_on = Counter(placement.node_id for placement in self._dry_runs.unchanged.placed(self._made.name))
        for placement in dry_run.placed(self._made.name):
            if not placed_on[placement.node_id]:
                node = self._dry_runs.snapshot.nodes[placement.node_id]
                return replace(change, node_id=node.id, node_name=node.name)
            placed_on[placement.node_id] -= 1
        return change

    def _run(self, edits: Edits) -> DryRun:
        return self._dry_runs.run(edits, group=self._made.name)

    def _places(self, dry_run: DryRun) -> int:
        """The number of the group's allocations that a dry run placed beyond the unchanged one."""
        name, before = self._made.name, self._dry_runs.unchanged
        if self._dry_runs.job.type in (JOB_SYSTEM, JOB_SYSBATCH):
            return max(0, dry_run.served(name) - before.served(name))
        return max(0, before.unplaced(name) - dry_run.unplaced(name))

    def _others_waiting(self, dry_run: DryRun) -> int:
        """The number of unplaced allocations of the job's other groups."""
        return sum(dry_run.unplaced(group.name) for group in self._dry_runs.job.task_groups if group is not self._group)


def _with_edits(change: SmallestChange, edits: Edits) -> SmallestChange:
    return replace(change, edits=edits, text=text_of(edits))


def _farthest(group: TaskGroup, edits: Edits) -> Iterator[SuggestedEdit]:
    """The edits with their numbers at their limits."""
    kinds = {edit.kind for edit in edits}
    kind: AmountKind
    for kind in ("cpu", "memory"):
        if kind in kinds:
            yield from _lowest(group, kind)
    ends = {"disk": disk_min(group), "cores": 1, "device": 0, "device_memory": 1}
    for edit in edits:
        if edit.kind in ends:
            yield with_numbers(edit, before=edit.before, after=min(edit.after, ends[edit.kind]))
        elif edit.kind == "distinct_property" and edit.after:
            yield with_numbers(edit, before=edit.before, after=max(edit.after, group.count))
        elif edit.kind not in ("cpu", "memory"):
            yield edit


def _lowest(group: TaskGroup, kind: AmountKind) -> Iterator[SuggestedEdit]:
    """An amount lowered in all tasks, the smallest first, since these are restored first."""
    amounts = {task.name: (amount_of(task, kind), least_of(task, kind)) for task in group.tasks}
    for name, (amount, least) in sorted(amounts.items(), key=lambda entry: (entry[1][0], entry[0])):
        if amount > least:
            yield numbered(kind, amount, least, task=name)
