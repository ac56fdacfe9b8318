"""The order of plans, and how a big one is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.broker import PlanQueue, cut_plan, size_of
from yurt.sdk.value import replace
from yurt.structs.deployment import Deployment
from yurt.structs.plan import AllocStop, DeploymentUpdate, Plan
from yurt.testing import factories


def plan(**changes: object) -> Plan:
    return replace(Plan(eval_id="e", namespace="default", job_id="web"), **changes)


def test_urgent_plans_go_first_and_equal_ones_in_order() -> None:
    queue: PlanQueue[str] = PlanQueue()
    for name, priority in (("a", 50), ("b", 80), ("c", 50)):
        queue.push(plan(priority=priority), name)
    assert [queue.pop()[1] for _ in range(len(queue))] == ["b", "a", "c"]


def test_a_small_plan_stays_whole_and_a_part_of_an_indivisible_one_is_one_too() -> None:
    job, node = factories.job(), factories.node()
    many = plan(placements=tuple(factories.placement(job, on=node, index=i) for i in range(30)))
    assert cut_plan(many, 30) == (many,)
    parts = cut_plan(replace(many, all_at_once=True), 10)
    assert len(parts) == 3 and all(part.is_indivisible for part in parts)


@given(count=st.integers(1, 40), stops=st.integers(0, 40), limit=st.integers(1, 12))
def test_the_parts_hold_everything_once_and_stops_come_no_later_than_their_placements(
    count: int, stops: int, limit: int
) -> None:
    job, nodes = factories.job(), [factories.node() for _ in range(4)]
    old = tuple(AllocStop(id=f"old-{i}", node_id=nodes[i % 4].id) for i in range(stops))
    placements = tuple(
        factories.placement(job, on=nodes[(i * 3) % 4], index=i, previous_allocation=f"old-{i}" if i < stops else "")
        for i in range(count)
    )
    updates = (DeploymentUpdate(deployment_id="d", status="cancelled"),)
    made = plan(placements=placements, stops=old, deployment=Deployment(id="d2"), deployment_updates=updates)
    parts = cut_plan(made, limit)
    assert sum(size_of(part) for part in parts) == size_of(made)
    assert {p.id for part in parts for p in part.placements} == {p.id for p in placements}
    assert next(part.deployment for part in parts) == made.deployment
    assert parts[-1].deployment_updates == updates
    gone: set[str] = set()
    for part in parts:
        gone |= {stop.id for stop in part.stops}
        for placement in part.placements:
            assert not placement.previous_allocation or placement.previous_allocation in gone
