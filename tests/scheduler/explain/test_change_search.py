"""The least change for a gang makes room for all that must run together, however many they are."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from yurt.scheduler.explain import change_search, why_not
from yurt.scheduler.explain.edits import joined, numbered, text_of
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import SmallestChange, SuggestedEdit
from yurt.structs.job import Job
from yurt.structs.policies import Gang
from yurt.structs.resources import EphemeralDisk, Resources
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import node, placed_with, smaller_than, state_of
from yurt.testing.nightly import cases

CASES = min(cases(200), 4_000)
"""Each takes some fifty attempts."""
WHOLE: dict[str, Any] = {"all_at_once": True}


def _job(count: int, *asked: Resources, **changes: Any) -> Job:
    """All of one group must run together; its tasks ask so much."""
    tasks = tuple(factories.task(f"t{number}", resources=each) for number, each in enumerate(asked))
    gang, constraints = changes.pop("gang", None), changes.pop("constraints", ())
    group = factories.group(count=count, tasks=tasks, gang=gang, constraints=constraints, **changes)
    return factories.job(task_groups=(group,), **({} if gang else WHOLE))


def _change(state: Snapshot, job: Job) -> SmallestChange | None:
    return why_not(state, job, now=factories.NOW, seed=1).groups[0].smallest_change


def _placed(state: Snapshot, job: Job, edits: tuple[SuggestedEdit, ...]) -> int:
    return placed_with(state, job, edits)["web"]


def _assert_least(state: Snapshot, job: Job, change: SmallestChange) -> None:
    assert change.places == _placed(state, job, change.edits) > 0, change
    assert change.text == text_of(change.edits)
    assert change.is_proved, change
    for smaller in smaller_than(change.edits):
        assert not _placed(state, job, smaller), (change, smaller)


@pytest.mark.parametrize("gang", [None, Gang(min=200)])
def test_a_large_gang_gets_the_change_that_places_all_of_it(gang: Gang | None) -> None:
    state = state_of(node(1), node(2))
    job = _job(200, Resources(cpu=1500, memory_mb=10), gang=gang)
    change = _change(state, job)
    assert change is not None and change.text == 'lower the cpu of task "t0" from 1500 to 40 MHz'
    assert change.places == 200
    _assert_least(state, job, change)


def test_a_gang_that_runs_short_of_several_things_gets_each_as_near_as_it_can_be() -> None:
    state = state_of(node(1), node(2))
    job = _job(120, Resources(cpu=700, memory_mb=300), Resources(cpu=20, memory_mb=20), ephemeral_disk=_disk(9000))
    change = _change(state, job)
    assert change is not None and {edit.kind for edit in change.edits} == {"cpu", "memory", "disk"}
    _assert_least(state, job, change)


def _disk(size: int) -> EphemeralDisk:
    return EphemeralDisk(size_mb=size)


def test_the_limit_of_a_distinct_property_is_raised_as_far_as_a_gang_needs() -> None:
    state = state_of(*(node(number, meta={"rack": "r1"}) for number in range(3)))
    rule = Constraint(l_target="${meta.rack}", operand="distinct_property", r_target="2")
    job = _job(60, Resources(cpu=10, memory_mb=10), constraints=(rule,))
    change = _change(state, job)
    assert change is not None and change.places == 60
    assert change.text == "raise the limit of distinct_property: ${meta.rack} from 2 to 60"


def test_of_edits_that_are_made_or_not_made_only_those_that_a_gang_needs_are_kept() -> None:
    state = state_of(*(node(number, scheduling_eligibility="ineligible") for number in range(40)))
    change = _change(state, _job(40, Resources(cpu=3900, memory_mb=64)))
    assert change is not None and change.places == 40
    assert change.text == 'lower the cpu of task "t0" from 3900 to 100 MHz; make node node-0 eligible'


def test_a_gang_that_needs_a_change_of_each_of_many_nodes_is_told_that_the_first_places_none() -> None:
    asleep = {"scheduling_eligibility": "ineligible", "node_max_allocs": 1}
    few = _change(state_of(*(node(number, **asleep) for number in range(9))), _job(9, Resources(cpu=10, memory_mb=10)))
    assert few is not None and (few.places, len(few.edits)) == (9, 9)
    count = change_search.ROUNDS_MAX + 1
    many = state_of(*(node(number, **asleep) for number in range(count)))
    change = _change(many, _job(count, Resources(cpu=10, memory_mb=10)))
    assert change is not None and (change.places, len(change.edits)) == (0, 1)


def test_edits_of_one_thing_are_told_from_the_first_number_to_the_last_whatever_the_task_is_called() -> None:
    name = "moves from 900 to 700 MHz"
    first, then = numbered("cpu", 900, 700, task=name), numbered("cpu", 700, 500, task=name)
    (edit,) = joined((first,), (then,))
    assert edit.text == 'lower the cpu of task "moves from 900 to 700 MHz" from 900 to 500 MHz'
    gpu, none = numbered("device", 4, 2, task="t", name="gpu"), numbered("device", 2, 0, task="t", name="gpu")
    assert text_of(joined((gpu,), (none,))) == 'leave out the device "gpu" of task "t"'


@pytest.mark.parametrize("seed", range(4))
def test_the_change_of_any_gang_places_it_and_nothing_smaller_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_search, "LEAP_AFTER", (0, 0, 2, 6)[seed])
    random = Random(seed)
    told = 0
    for _ in range(max(1, CASES // 4)):
        state = state_of(*(node(number) for number in range(random.randrange(1, 4))))
        tasks = [
            Resources(cpu=random.randrange(20, 1500), memory_mb=random.randrange(20, 1500))
            for _ in range(random.choice((1, 1, 2)))
        ]
        job = _job(random.randrange(2, 90), *tasks, ephemeral_disk=_disk(random.choice((300, 900))))
        change = None if _placed(state, job, ()) else _change(state, job)
        if change is not None:
            _assert_least(state, job, replace(change))
            told += 1
    assert told > CASES // 12
