"""Room for as many as must run together: the least change for one more, grown until it places what it has to.

Where all of a job or many of a group must run together, room for one more places none. A few more get room one after
another, each by the least change that follows those before it. For many that would take too long: then every number is
taken as far as it goes, and if the gang finds room so, each part of the change is taken back as far as it can be, by
bisecting. What a number is taken back to is the nearest with which the gang still finds room, the others being as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from yurt.scheduler.changes import amount_of, disk_min, least_of
from yurt.scheduler.edits import joined, numbered, text_of, with_numbers
from yurt.scheduler.trials import Trial, Trials
from yurt.sdk.value import replace
from yurt.structs.explain import Edit, GroupExplanation, SmallestChange
from yurt.structs.job import TaskGroup

ROUNDS_MAX = 32
"""So many allocations get room one after another where no number leads further: each needs its own part of a change."""
LEAP_AFTER = 6
"""After so many of them numbers are taken as far as they go."""
LEAPS_MAX = 6
"""Kinds of things that a leap may run short of, one after another."""
TRIES_MAX = 120
"""Attempts by which a change is taken back; what is left then places the gang too, but may not be the least."""


def with_places(trials: Trials, made: GroupExplanation) -> GroupExplanation:
    """The explanation with how many more allocations its least change places, grown where they must run together."""
    change, group = made.smallest_change, trials.job.group(made.name)
    if change is None or group is None:
        return made
    if trials.job.all_at_once or group.least > 1:
        change = _grown(trials, made, change)
    else:
        change = replace(change, places=_places(trials.run(change.edits, group=made.name), made))
    return replace(made, smallest_change=change)


def _grown(trials: Trials, made: GroupExplanation, first: SmallestChange) -> SmallestChange:
    """The change grown until it places some, or as it was when it never does."""
    change = first
    for number in range(ROUNDS_MAX):
        if number == LEAP_AFTER and (far := _leap(trials, made, change)) is not None:
            return far
        trial = trials.run(change.edits, group=made.name)
        places = _places(trial, made)
        if places:
            return replace(change, places=places)
        more = trial.change_for_one_more(made.name)
        if more is None:
            break
        edits = joined(change.edits, more.edits)
        change = replace(more, edits=edits, text=text_of(edits))
    return first


def _places(trial: Trial, made: GroupExplanation) -> int:
    """How many more of the group a trial placed than the job as it is does."""
    if not made.desired:
        return len(trial.placed(made.name))
    return max(0, made.unplaced - trial.unplaced(made.name))


def _leap(trials: Trials, made: GroupExplanation, change: SmallestChange) -> SmallestChange | None:
    """A change that places the gang, each number being as near as it can be; None when even the farthest do not."""
    group = trials.job.group(made.name)
    assert group is not None
    edits: Sequence[Edit] = change.edits
    for _ in range(LEAPS_MAX):
        edits = list(_farthest(group, edits))
        trial = trials.run(edits, group=made.name)
        if _places(trial, made):
            edits = _taken_back(edits, lambda tried: _places(trials.run(tried, group=made.name), made) > 0)
            places = _places(trials.run(edits, group=made.name), made)
            return replace(change, edits=tuple(edits), text=text_of(edits), places=places)
        more = trial.change_for_one_more(made.name)
        if more is None:
            break
        edits = joined(edits, more.edits)
    return None


def _farthest(group: TaskGroup, edits: Sequence[Edit]) -> Iterator[Edit]:
    """The edits with their numbers as far as they go."""
    kinds = {edit.kind for edit in edits}
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


def _lowest(group: TaskGroup, kind: str) -> Iterator[Edit]:
    """An amount lowered in all tasks, the smallest first: they are the first to get theirs back."""
    amounts = {task.name: (amount_of(task, kind), least_of(task, kind)) for task in group.tasks}
    for name, (amount, least) in sorted(amounts.items(), key=lambda entry: (entry[1][0], entry[0])):
        if amount > least:
            yield numbered(kind, amount, least, task=name)


def _taken_back(edits: Sequence[Edit], is_enough: Callable[[Sequence[Edit]], bool]) -> list[Edit]:
    """The edits, which are enough, each left out or taken back as far as they stay so."""
    kept, tries = list(edits), 0
    for edit in edits:
        at = kept.index(edit)
        near, far = edit.before, edit.after
        without = [*kept[:at], *kept[at + 1 :]]
        tries += 1
        if tries <= TRIES_MAX and is_enough(without):
            kept = without
            continue
        while abs(far - near) > 1 and tries < TRIES_MAX:
            middle = (near + far) // 2
            tried = [*kept[:at], with_numbers(edit, before=edit.before, after=middle), *kept[at + 1 :]]
            tries += 1
            if is_enough(tried):
                kept, far = tried, middle
            else:
                near = middle
    return kept
