"""What a replacement gives back counts as free where it finds no room, as it did when it was tried."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm import apply
from yurt.scheduler.explain import why_not
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.job import Job
from yurt.structs.policies import UpdateStrategy
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import node, run, state_of

PREEMPTING = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
ALONE = Constraint(operand="distinct_hosts")
ONE_BY_ONE = factories.update_strategy()


def _job(cpu: int, count: int = 1, *, update: UpdateStrategy | None = None, **changes: Any) -> Job:
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
    group = factories.group(count=count, tasks=(task,), update=update)
    return factories.job(task_groups=(group,), **changes)


def _why_not(state: Snapshot, job: Job) -> GroupExplanation:
    return why_not(state, job, now=factories.NOW, seed=1).groups[0]


def _near(found: GroupExplanation) -> dict[str, list[str]]:
    return {miss.node_name: [short.text for short in miss.shortfalls] for miss in found.near_misses}


def _change(found: GroupExplanation) -> tuple[str, int]:
    assert found.smallest_change is not None
    return found.smallest_change.text, found.smallest_change.places


@pytest.mark.parametrize("changes", [{}, {"constraints": (ALONE,)}])
def test_an_update_is_short_of_what_it_asks_beyond_what_its_own_stop_gives_back(changes: Any) -> None:
    state = run(state_of(node(1)), replace(_job(1000), id="other"))
    state = run(state, _job(2900, **changes))
    found = _why_not(state, _job(3100, **changes))
    assert (found.running, found.placed, found.unplaced) == (1, 0, 1)
    assert _near(found) == {"node-1": ["100 MHz CPU short"]}
    assert [(blocker.text, blocker.nodes, blocker.alone) for blocker in found.blockers] == [("cpu", 1, 1)]
    assert _change(found) == ('lower the cpu of task "web" from 3100 to 3000 MHz', 1)


@pytest.mark.parametrize("update", [None, ONE_BY_ONE])
def test_allocations_of_the_version_before_give_nothing_back_until_they_are_replaced_too(update: Any) -> None:
    state = run(state_of(node(1)), _job(1000, 3, update=update))
    found = _why_not(state, _job(2100, 3, update=update))
    assert _near(found) == {"node-1": ["100 MHz CPU short"]}
    assert _change(found) == ('lower the cpu of task "web" from 2100 to 2000 MHz', 1)


def test_a_job_that_is_placed_whole_or_not_at_all_is_short_of_what_its_next_replacement_lacks() -> None:
    state = run(state_of(node(1), node(2)), replace(_job(1500), id="other"))
    state = run(state, _job(1000, 3, all_at_once=True))
    found = _why_not(state, _job(2600, 3, all_at_once=True))
    assert (found.running, found.placed, found.unplaced) == (3, 0, 3)
    assert found.smallest_change is not None and found.smallest_change.places == 3
    for short in _near(found).values():
        assert short[0].endswith("MHz CPU short")


def test_those_that_run_shrink_for_one_more_only_as_far_as_they_are_replaced_before_it() -> None:
    for update, expected in ((None, 1000), (factories.update_strategy(max_parallel=9), 1000), (ONE_BY_ONE, 400)):
        state = run(state_of(node(1)), _job(1200, 3, update=update))
        found = _why_not(state, _job(1200, 4, update=update))
        assert _near(found) == {"node-1": ["800 MHz CPU short"]}
        assert _change(found) == (f'lower the cpu of task "web" from 1200 to {expected} MHz', 1)


def test_a_system_job_s_update_counts_as_free_what_it_gives_back_on_each_node() -> None:
    state = run(state_of(node(1), node(2)), replace(_job(1000), id="other"))
    (other,) = state.allocs_of_job("default", "other")
    state = run(state, _job(2900, type="system"))
    found = _why_not(state, _job(4010, type="system"))
    assert found.unplaced == 2
    short = {node.name: 1010 if node.id == other.node_id else 10 for node in state.nodes.values()}
    assert _near(found) == {name: [f"{mhz} MHz CPU short"] for name, mhz in short.items()}


def test_what_may_be_preempted_counts_as_free_for_every_group() -> None:
    state = run(state_of(node(1)), replace(_job(3000), id="low", priority=20))
    state = apply(state, c.SetSchedulerConfiguration(configuration=PREEMPTING), index=state.index + 1).state
    large = factories.task(resources=Resources(cpu=4100, memory_mb=10))
    groups = tuple(factories.group(name, tasks=(large,)) for name in ("one", "two"))
    for found in why_not(state, factories.job(task_groups=groups), now=factories.NOW, seed=1).groups:
        assert found.notes == ("what 1 less important allocation that may be preempted uses counts as free below",)
        assert _near(found) == {"node-1": ["100 MHz CPU short"]}
