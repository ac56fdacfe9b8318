"""The order in which surplus allocations of a group stop (docs/explanation/reconciling.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from yurt.scheduler.reconcile.alloc_names import NameIndex, index_of
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_terminal


def scale_down_order(
    counted: Iterable[Allocation], migrate: Iterable[Allocation], names: NameIndex, canaries: Collection[str]
) -> list[Allocation]:
    """All counted allocations, in the order in which they would stop.

    First come those whose names promoted canaries have (`canaries` holds their ids), then those whose names are above
    the count, then the newer ones of equal names; within each of these those that are to migrate anyway. One that has
    ended and only keeps its place gives it up like any other, so that nothing that runs is stopped in its stead.
    """
    migrating = {alloc.id for alloc in migrate}
    everyone = [*counted, *migrate]
    canary_names = {alloc.name for alloc in everyone if alloc.id in canaries}
    seen: set[str] = set()
    duplicates = set()
    for alloc in sorted(
        everyone, key=lambda a: (a.id in migrating, is_terminal(a), a.create_index, a.create_time, a.id)
    ):
        if alloc.name in seen:
            duplicates.add(alloc.id)
        seen.add(alloc.name)

    def rank(alloc: Allocation) -> tuple[object, ...]:
        if alloc.name in canary_names and alloc.id not in canaries:
            place = 0
        elif names.is_above(alloc):
            place = 1
        else:
            place = 2 if alloc.id in duplicates else 3
        return (place, alloc.id not in migrating, -index_of(alloc), -alloc.create_index, alloc.id)

    return sorted(everyone, key=rank)
