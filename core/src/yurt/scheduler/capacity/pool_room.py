"""The free capacity of a node pool, and how many allocations of a group it may take: a test before any attempt.

The test is necessary, not sufficient: ports, constraints, spreads and quotas are not looked at. Where it says that
nothing fits, no attempt would place anything; that spares a queue of 10,000 jobs 10,000 attempts for each allocation
that ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.devices.offers import Stock, rack_of
from yurt.state.arrays import IntArray
from yurt.state.columns import ALLOCS, CORES, CPU, DISK, IS_READY, MEMORY, POOL
from yurt.state.held import NOTHING_HELD, Held, with_usage
from yurt.state.store import Snapshot
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice

AMOUNTS = (CPU, MEMORY, DISK, CORES)
SHARES_PER_CARD = 48
"""How many shares a card is taken to have room for: their sizes are for the scheduler."""


Signature = tuple[object, ...]


class Wanted(NamedTuple):
    """Allocations of one group that wait."""

    ask: GroupAsk
    number: int
    least: int
    """Fewer are not placed: more than 1 for gangs."""


class PoolRoom:
    """Free amounts and devices of the ready nodes of a pool; `take` and `release` change them."""

    def __init__(self, snapshot: Snapshot, pool: str) -> None:
        columns = snapshot.columns
        nodes = columns.nodes
        number = nodes.pools.numbers.get(pool, -1)
        offered = nodes.offered
        self.rows: IntArray = np.flatnonzero((offered[:, POOL] == number) & (offered[:, IS_READY] > 0))
        ids = nodes.ids
        self._snapshot = snapshot
        self._ids = [ids[row] for row in self.rows.tolist()]
        self._at = {node_id: at for at, node_id in enumerate(self._ids)}
        self.offered: IntArray = offered[self.rows][:, AMOUNTS]
        self.free: IntArray = self.offered - columns.used[self.rows][:, AMOUNTS]
        limits, used = offered[self.rows, ALLOCS], columns.used[self.rows, ALLOCS]
        self._slots: IntArray = _slots(limits, used)
        self._empty_slots: IntArray = _slots(limits, np.zeros_like(used))
        self._held: dict[int, Held] = {}
        self._taken: dict[RequestedDevice, IntArray] = {}
        self._counts: dict[RequestedDevice, IntArray] = {}
        self._empty_counts: dict[RequestedDevice, IntArray] = {}
        self._sums: dict[Signature, int] = {}
        """What fits of equal asks, until the room changes: most jobs of a queue ask alike."""

    def places(self, ask: GroupAsk) -> IntArray:
        """How many allocations each row may take."""
        return self._places(ask, self.free, self._slots, is_empty=False)

    def total_places(self, ask: GroupAsk) -> int:
        """How many allocations the pool may take when nothing else runs in it."""
        key = ("empty", *_signature(ask))
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = int(self._places(ask, self.offered, self._empty_slots, is_empty=True).sum())
        return found

    def take(self, wanted: Iterable[Wanted]) -> dict[int, int]:
        """Take what fits of some groups, the fullest rows first; returns the number by row. Empty: nothing fits."""
        taken: dict[int, int] = {}
        for one in wanted:
            places = self.places(one.ask)
            if places.sum() < max(1, one.least):
                continue
            left = one.number
            for at in np.flatnonzero(places).tolist():
                number = min(left, int(places[at]))
                self._use(at, one.ask, number)
                taken[at] = taken.get(at, 0) + number
                left -= number
                if not left:
                    break
        return taken

    def has_room(self, wanted: Iterable[Wanted]) -> bool:
        """Whether some group could place something now."""
        return any(self._sum(one.ask) >= max(1, one.least) for one in wanted)

    def first_release(self, wanted: Sequence[Wanted], ended: Sequence[Allocation]) -> int:
        """How many of these allocations must end, in their order, until some group fits; -1 when all are too few.

        Only the row of each is looked at again. The room is left with these allocations released.
        """
        sums = [self._sum(one.ask) for one in wanted]
        for number, alloc in enumerate(ended, 1):
            at = self._at.get(alloc.node_id)
            if at is None:
                continue
            before = [self._row_places(at, one.ask) for one in wanted]
            self.release((alloc,))
            for index, one in enumerate(wanted):
                sums[index] += self._row_places(at, one.ask) - before[index]
                if sums[index] >= max(1, one.least):
                    return number
        return -1

    def release(self, allocs: Iterable[Allocation]) -> None:
        """Count allocations as ended."""
        for alloc in allocs:
            at = self._at.get(alloc.node_id)
            if at is None:
                continue
            usage = usage_of(alloc)
            self.free[at] += np.asarray((usage.cpu, usage.memory, usage.disk, len(usage.cores)))
            self._slots[at] += 1
            self._held[at] = with_usage(self._held_on(at), usage, -1)
            for request, counts in self._counts.items():
                counts[at] = self._count(at, request, self._held[at])
        self._sums.clear()

    def spares(self, rows: Iterable[int], ask: GroupAsk, number: int) -> bool:
        """Whether so many allocations fit on each of these rows beside what was taken, without their devices."""
        amounts = _amounts(ask) * number
        for at in rows:
            if bool((self.free[at] < amounts).any()):
                return False
            rack = rack_of(self._snapshot.nodes[self._ids[at]])
            if any(rack.matching(request) for request in _requests(ask)):
                return False
        return True

    def use_on(self, rows: Iterable[int], ask: GroupAsk, number: int) -> None:
        """Take the amounts of so many allocations on each of these rows: wherever they go, the rest is left."""
        for at in rows:
            self.free[at] -= _amounts(ask) * number

    def _places(self, ask: GroupAsk, free: IntArray, slots: IntArray, *, is_empty: bool) -> IntArray:
        amounts = _amounts(ask)
        asked = np.flatnonzero(amounts)
        if len(asked):
            found = np.maximum(free[:, asked], 0) // amounts[asked]
            places: IntArray = np.minimum(found.min(axis=1), slots)
        else:
            places = slots.copy()
        for request in _requests(ask):
            places = np.minimum(places, self._devices(request, is_empty=is_empty))
        return np.maximum(places, 0)

    def _sum(self, ask: GroupAsk) -> int:
        key = _signature(ask)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = int(self.places(ask).sum())
        return found

    def _row_places(self, at: int, ask: GroupAsk) -> int:
        """What `places` says of one row."""
        found = int(self._slots[at])
        for asked, free in zip(_amounts(ask).tolist(), self.free[at].tolist(), strict=True):
            if asked:
                found = min(found, max(0, free) // asked)
        for request in _requests(ask):
            found = min(found, int(self._devices(request, is_empty=False)[at]))
        return max(0, found)

    def _use(self, at: int, ask: GroupAsk, number: int) -> None:
        self._sums.clear()
        self.free[at] -= _amounts(ask) * number
        self._slots[at] -= number
        for request in _requests(ask):
            self._devices(request, is_empty=False)
            taken = self._taken.setdefault(request, np.zeros_like(self._slots))
            taken[at] += number

    def _devices(self, request: RequestedDevice, *, is_empty: bool) -> IntArray:
        """For how many allocations each row has devices."""
        if is_empty:
            if request not in self._empty_counts:
                empty = [self._count(at, request, NOTHING_HELD) for at in range(len(self._ids))]
                self._empty_counts[request] = np.asarray(empty, np.int64)
            return self._empty_counts[request]
        counts = self._counts.get(request)
        if counts is None:
            counts = self._counts[request] = self._present_counts(request)
        taken = sum((number for other, number in self._taken.items() if _overlap(other, request)), start=0)
        return counts - taken

    def _present_counts(self, request: RequestedDevice) -> IntArray:
        """The counts of all rows; those of nodes that have not changed since somebody asked are remembered."""
        lasting = self._snapshot.columns.nodes.lasting
        known: dict[str, tuple[Node, Held, int]] = lasting.setdefault(("pool room", request), {})
        nodes, held = self._snapshot.nodes, self._snapshot.columns.held
        found: list[int] = []
        for at, node_id in enumerate(self._ids):
            if at in self._held:
                found.append(self._count(at, request, self._held[at]))
                continue
            node, now = nodes[node_id], held.get(node_id, NOTHING_HELD)
            entry = known.get(node_id)
            if entry is None or entry[0] is not node or entry[1] is not now:
                entry = known[node_id] = (node, now, self._count(at, request, now))
            found.append(entry[2])
        return np.asarray(found, np.int64)

    def _count(self, at: int, request: RequestedDevice, held: Held) -> int:
        node = self._snapshot.nodes[self._ids[at]]
        if not node.node_resources.devices:
            return 0
        stock = Stock(node, held.devices)
        items = stock.matching(request)
        if request.share:
            open_cards = sum(1 for item in items if not stock.of(item).is_whole)
            return open_cards * SHARES_PER_CARD // max(1, request.count)
        free = sum(1 for item in items if stock.is_free(item))
        if request.all_of_node:
            return int(free > 0 and free == len(items))
        return free // max(1, request.count)

    def _held_on(self, at: int) -> Held:
        found = self._held.get(at)
        return self._snapshot.columns.held.get(self._ids[at], NOTHING_HELD) if found is None else found


def _requests(ask: GroupAsk) -> Sequence[RequestedDevice]:
    """The requests that a row must meet; alternatives are for the scheduler."""
    return [request for _, request in ask.devices if not request.first_available]


def _signature(ask: GroupAsk) -> Signature:
    """What decides how often an ask fits."""
    usage = ask.plain.usage
    return (usage.cpu, usage.memory, usage.disk, ask.cores, tuple(_requests(ask)))


def _overlap(one: RequestedDevice, other: RequestedDevice) -> bool:
    """Whether both may be met by the same device: their types are the same."""
    return _type(one.name) == _type(other.name)


def _type(name: str) -> str:
    parts = name.split("/", 2)
    return parts[0] if len(parts) == 1 else parts[1]


def _amounts(ask: GroupAsk) -> IntArray:
    usage = ask.plain.usage
    return np.asarray((usage.cpu, usage.memory, usage.disk, ask.cores), np.int64)


def _slots(limit: IntArray, used: IntArray) -> IntArray:
    """How many more allocations the nodes' own limits allow."""
    return np.where(limit > 0, limit - used, 1 << 30)
