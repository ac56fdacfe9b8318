"""Plans in the log: packed, and given back to the byte."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.fsm import apply
from yurt.fsm.snapshot import digest
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.commands.packed import packed, unpacked
from yurt.structs.constraint import Affinity, Spread
from yurt.structs.plan import Plan
from yurt.structs.resources import Resources
from yurt.testing import factories

SMALL = Resources(cpu=100, memory_mb=64)


def planned(
    counts: tuple[int, ...], *, has_spread: bool = False, has_affinity: bool = False, resources: Resources = SMALL
) -> tuple[Snapshot, Plan]:
    """A state of twelve nodes with a job of some groups, and the plan that places it."""
    spreads = (Spread(attribute="${node.datacenter}", weight=50),) if has_spread else ()
    affinities = (Affinity(l_target="${node.class}", operand="=", r_target="a", weight=50),) if has_affinity else ()
    tasks = (factories.task(resources=resources),)
    groups = tuple(
        factories.group(f"group-{number}", count=count, tasks=tasks, spreads=spreads, affinities=affinities)
        for number, count in enumerate(counts)
    )
    job = factories.job(task_groups=groups)
    state = Snapshot.empty()
    for number in range(12):
        node = factories.node(factories.number_id(number, kind=1), node_class="ab"[number % 2])
        state = apply(state, c.RegisterNode(node=node), index=state.index + 1).state
    evaluation = factories.evaluation(job)
    state = apply(state, c.RegisterJob(job=job, evaluation=evaluation), index=state.index + 1).state
    return state, scheduler.attempt(state, evaluation, now=UnixNano(1), seed=1).plan


@settings(max_examples=25)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_a_packed_plan_is_given_back_and_leads_to_the_same_state(
    counts: list[int], has_spread: bool, has_affinity: bool
) -> None:
    state, plan = planned(tuple(counts), has_spread=has_spread, has_affinity=has_affinity)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(packed(plan)), type=Plan)
    assert unpacked(stored) == plan
    leader = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    follower = apply(state, c.ApplyPlan(plan=stored), index=state.index + 1).state
    assert digest(leader) == digest(follower)


def test_a_plan_that_fills_nodes_up_is_packed_and_tells_when_each_was_full() -> None:
    state, plan = planned((8,), resources=Resources(cpu=3900, memory_mb=64))
    assert [p.metrics.nodes_exhausted for p in plan.placements if p.metrics is not None] == list(range(8))
    small = packed(plan)
    assert len(small.blocks) == 1 and len(small.blocks[0].exhausted) == 7
    assert unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(small), type=Plan)) == plan
    block = small.blocks[0]
    late = replace(block, exhausted=(replace(block.exhausted[0], at=block.count),))
    with pytest.raises(Invalid, match="the exhausted nodes change at placement"):
        unpacked(replace(small, blocks=(late,)))
    digests = [digest(apply(state, c.ApplyPlan(plan=each), index=state.index + 1).state) for each in (plan, small)]
    assert digests[0] == digests[1]


def test_a_staged_plan_is_the_same_in_the_state_whether_it_came_packed_or_not() -> None:
    state, plan = planned((20,))
    steps = [
        apply(state, c.StagePlan(plan_id="p", number=0, plan=each), index=state.index + 1).state
        for each in (plan, packed(plan))
    ]
    assert digest(steps[0]) == digest(steps[1])


def test_a_packed_placement_takes_a_tenth_of_what_it_takes_by_itself() -> None:
    _, plan = planned((30, 30))
    sizes = [len(msgspec.msgpack.encode(each)) for each in (plan, packed(plan))]
    assert sizes[1] * 5 < sizes[0]
    assert not packed(plan).placements


def test_placements_that_say_more_than_a_block_holds_stay_as_they_are() -> None:
    _, plan = planned((20,))
    first = plan.placements[0]
    assert first.metrics is not None
    others = (
        replace(first, previous_allocation="x"),
        replace(first, preempted_allocations=("x",)),
        replace(first, name="another"),
        replace(first, id="no UUID"),
        replace(first, metrics=None),
        replace(first, metrics=replace(first.metrics, nodes_evaluated=999)),
        replace(first, metrics=replace(first.metrics, score_meta_data=())),
    )
    for other in others:
        changed = replace(plan, placements=(other, *plan.placements[1:]))
        assert packed(changed) is changed


def test_broken_blocks_are_told_and_rejected() -> None:
    state, plan = planned((20,))
    block = packed(plan).blocks[0]
    broken = [
        replace(block, count=block.count + 1),
        replace(block, ids=block.ids[:-3]),
        replace(block, nodes=b""),
        replace(block, tables=b"\xff" * len(block.tables)),
    ]
    for each in broken:
        with pytest.raises(Invalid, match="packed placements are broken"):
            unpacked(replace(plan, placements=(), blocks=(each,)))
    command = c.ApplyPlan(plan=replace(plan, placements=(), blocks=(broken[0],)))
    assert isinstance(apply(state, command, index=state.index + 1).result, c.Rejected)
