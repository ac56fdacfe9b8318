"""The smallest change that an explanation names places more, and none that is smaller does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from yurt.fsm import apply
from yurt.scheduler.explain import why_not
from yurt.scheduler.explain.edits import text_of
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import (
    node,
    placed_with,
    random_job,
    random_node,
    run,
    smaller_than,
    state_of,
)
from yurt.testing.nightly import cases

CASES = cases(500)
JobMaker = Callable[[Random], Job]
PREEMPTING = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))


def _explained(state: Snapshot, job: Job) -> tuple[GroupExplanation, ...]:
    return why_not(state, job, now=factories.NOW, seed=1).groups


def _random_state(random: Random, *, preempting: bool) -> Snapshot:
    """Up to four nodes, some of which another job uses."""
    state = state_of(*(random_node(random, number) for number in range(random.randrange(1, 5))))
    state = run(state, random_job(random, "other", priority=random.choice((30, 50))))
    if preempting:
        state = apply(state, c.SetSchedulerConfiguration(configuration=PREEMPTING), index=state.index + 1).state
    return state


def _assert_smallest(state: Snapshot, job: Job, told: GroupExplanation) -> bool:
    """Whether a change is told that places any; nothing smaller does so and leaves other groups as much room.

    One that places none makes room that other groups of the job take, and no change after it would help.
    """
    change = told.smallest_change
    if change is None:
        return False
    before, now = placed_with(state, job, ()), placed_with(state, job, change.edits, group=told.name)
    others = sum(now.values()) - now[told.name]
    assert now[told.name] - before[told.name] == change.places, change
    assert change.text == text_of(change.edits)
    if not change.places and others > sum(before.values()) - before[told.name]:
        return False
    assert change.places and change.is_proved, change
    for smaller in smaller_than(change.edits):
        less = placed_with(state, job, smaller, group=told.name)
        places_more = less[told.name] > before[told.name]
        assert not places_more or sum(less.values()) - less[told.name] < others, (change, smaller)
    return True


def _assert_told(random: Random, job: JobMaker, *, preempting: bool, runs_already: JobMaker | None = None) -> None:
    """Check what is told of jobs on random nodes, of which some run in another version; it must be told often."""
    told = 0
    for _ in range(max(1, CASES // 8)):
        state = _random_state(random, preempting=preempting)
        state = state if runs_already is None else run(state, runs_already(random))
        made = job(random)
        told += sum(_assert_smallest(state, made, group) for group in _explained(state, made))
    assert told > CASES // 40


@pytest.mark.parametrize("seed", range(8))
def test_the_smallest_change_places_one_more_and_nothing_smaller_does(seed: int) -> None:
    _assert_told(Random(seed), lambda random: random_job(random, "web"), preempting=bool(seed % 2))


@pytest.mark.parametrize("seed", range(2))
def test_the_smallest_change_of_a_group_leaves_other_groups_the_room_that_they_have(seed: int) -> None:
    _assert_told(Random(100 + seed), lambda random: random_job(random, "web", groups=2), preempting=bool(seed))


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_change_of_a_job_that_runs_already_counts_what_it_replaces(seed: int) -> None:
    _assert_told(
        Random(200 + seed),
        lambda random: random_job(random, "web", submit_time=factories.NOW + 1),
        preempting=bool(seed % 2),
        runs_already=lambda random: random_job(random, "web"),
    )


@pytest.mark.parametrize("job_type", ["system", "sysbatch", "batch"])
def test_the_smallest_change_of_jobs_of_other_types_places_more(job_type: str) -> None:
    _assert_told(Random(job_type), lambda random: random_job(random, "web", type=job_type), preempting=False)


def test_a_change_of_a_system_job_replaces_what_runs_already() -> None:
    state = run(
        state_of(node(1), node(2)),
        factories.job("web", type="system", task_groups=(_group("web", 1, cpu=2000, memory=20),)),
    )
    job = factories.job(
        "web", type="system", task_groups=(_group("web", 1, cpu=4500, memory=20),), submit_time=factories.NOW + 1
    )
    change = _explained(state, job)[0].smallest_change
    assert change is not None and (change.places, change.is_proved) == (1, True)
    assert change.text == 'lower the cpu of task "web" from 4500 to 4000 MHz'


def test_room_that_a_change_makes_and_another_group_takes_is_made_once_more() -> None:
    state = state_of(node(1, datacenter="eu-1"))
    groups = (_group("api", 1, cpu=3000, memory=20), _group("web", 1, cpu=3000, memory=20))
    api, web = _explained(state, factories.job(task_groups=groups))
    assert api.smallest_change is not None and api.smallest_change.text == 'add the datacenter "eu-1"'
    assert web.smallest_change is not None and web.smallest_change.text == (
        'add the datacenter "eu-1"; lower the cpu of task "web" from 3000 to 1000 MHz'
    )


def _group(name: str, count: int, *, cpu: int, memory: int) -> TaskGroup:
    return factories.group(
        name, count=count, tasks=(factories.task(name, resources=Resources(cpu=cpu, memory_mb=memory)),)
    )
