"""The order of plan checks, and the division of a large plan into log commands.

Higher priority first, then first come first served. A plan of more than `PART_LIMIT` allocations becomes consecutive
commands so that the apply loop can yield between them; each is valid alone: stops and preemptions travel with the
placements of the same node, the deployment travels in the first part, deployment updates and the gangs' minimums in the
last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from yurt.sdk.value import replace
from yurt.structs.plan import AllocStop, AttributeUpdate, InPlaceUpdate, Placement, Plan

PART_LIMIT: Final = 200

T = TypeVar("T")


class PlanQueue(Generic[T]):
    """Plans with attached values, highest priority first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Plan, T]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, plan: Plan, attached: T) -> None:
        """Add a plan behind those of equal priority."""
        self._count += 1
        heapq.heappush(self._heap, (-plan.priority, self._count, plan, attached))

    def pop(self) -> tuple[Plan, T]:
        """Remove and return the plan of highest priority; the queue must not be empty."""
        assert self._heap, "an empty queue has no plan"
        priority, number, plan, attached = heapq.heappop(self._heap)
        # The running number decides among equals, so that heapq never compares two plans.
        assert not self._heap or (priority, number) < self._heap[0][:2], "the most urgent plan first, then the oldest"
        return plan, attached

    def drain(self) -> list[T]:
        """Empty the queue; returns the attached values."""
        attached = [entry[3] for entry in self._heap]
        self._heap.clear()
        return attached


def size_of(plan: Plan) -> int:
    """The number of allocations in a plan."""
    return len(plan.placements) + len(plan.in_place) + len(plan.attributes) + len(plan.stops) + len(plan.preemptions)


def cut_plan(plan: Plan, limit: int = PART_LIMIT) -> tuple[Plan, ...]:
    """Cut a plan into consecutive parts of about `limit` allocations; the parts of an indivisible plan must be
    staged."""
    assert limit > 0, limit
    if size_of(plan) <= limit:
        return (plan,)
    bare = replace(
        plan,
        placements=(),
        in_place=(),
        attributes=(),
        stops=(),
        preemptions=(),
        deployment=None,
        deployment_updates=(),
        gangs={},
        gang_members={},
    )
    if size_of(plan) == len(plan.placements):
        lots = (plan.placements[at : at + limit] for at in range(0, len(plan.placements), limit))
        parts = [replace(bare, placements=lot) for lot in lots]
    else:
        parts = [_part(bare, rows) for rows in _bundles(plan, limit)]
    parts[0] = replace(parts[0], deployment=plan.deployment)
    parts[-1] = replace(parts[-1], deployment_updates=plan.deployment_updates, gang_members=plan.gang_members)
    assert sum(map(size_of, parts)) == size_of(plan), "the parts are the whole: no row is lost, none comes twice"
    assert all(map(size_of, parts)), "no part is empty: each would be a command that does nothing"
    return tuple(parts)


Row = Placement | InPlaceUpdate | AttributeUpdate | AllocStop
Rows = list[tuple[str, Row]]


def _bundles(plan: Plan, limit: int) -> Iterator[Rows]:
    """Rows in groups of about `limit`, without splitting families."""
    bundle: Rows = []
    for family in _families(plan):
        if bundle and len(bundle) + len(family) > limit:
            yield bundle
            bundle = []
        bundle.extend(family)
    if bundle:
        yield bundle


def _families(plan: Plan) -> Iterator[Rows]:
    """Changes that must be applied together: a placement, its replaced allocation, and those it preempts."""
    rest: dict[str, Rows] = {}
    for kind in ("stops", "preemptions", "attributes"):
        for row in getattr(plan, kind):
            rest.setdefault(row.id, []).append((kind, row))
    freed: dict[str, list[str]] = {}
    for stop in (*plan.stops, *plan.preemptions):
        freed.setdefault(stop.node_id, []).append(stop.id)
    for placement in plan.placements:
        family: Rows = [("placements", placement)]
        for alloc_id in (
            placement.previous_allocation,
            *placement.preempted_allocations,
            *freed.pop(placement.node_id, ()),
        ):
            family[:0] = rest.pop(alloc_id, [])
        yield family
    for update in plan.in_place:
        yield [*rest.pop(update.id, []), ("in_place", update)]
    yield from rest.values()


def _part(bare: Plan, rows: Rows) -> Plan:
    fields: dict[str, list[Row]] = {}
    for kind, row in rows:
        fields.setdefault(kind, []).append(row)
    return replace(bare, **{kind: tuple(values) for kind, values in fields.items()})
