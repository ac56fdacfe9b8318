"""The free capacity of a node pool, and the number of allocations of a group that fit: a test before any attempt.

The test is necessary, not sufficient: ports, constraints, spreads and quotas are not looked at. Where it says that
nothing fits, no attempt would place anything; that spares a queue of 10,000 jobs 10,000 attempts for each allocation
that ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.devices.offers import Rack, Stock, mig_places, mig_places_max, rack_of
from yurt.scheduler.devices.topology import REQUIRE
from yurt.sdk.device import MIG
from yurt.state.arrays import IntArray
from yurt.state.columns import ALLOCS, CORES, CPU, DISK, IS_READY, MEMORY, POOL, Columns
from yurt.state.exclusive_resources import NOTHING_IN_USE, ExclusiveResources, with_usage
from yurt.state.store import Snapshot
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice

AMOUNTS = (CPU, MEMORY, DISK, CORES)
SHARES_PER_CARD: Final = 48
"""The assumed number of shares that fit on a card; the scheduler uses their real sizes."""
CARD_PARTS: Final = 35 * SHARES_PER_CARD
"""The parts in which devices are counted: a card has as many whole ones for each share, and for each of 1 to 8 MIG
instances."""
TABLES_MAX: Final = 64
"""The maximum number of different requests for which counts are maintained."""
ALL_ROWS: Final = slice(None)

Signature = tuple[object, ...]


class PendingAllocs(NamedTuple):
    """The waiting allocations of one group."""

    ask: GroupAsk
    number: int
    least: int
    """The minimum number that must be placed together; above 1 only for gangs."""


class PlannedAllocs(NamedTuple):
    """Allocations of one group that were taken from the free capacity: their number by row."""

    ask: GroupAsk
    rows: tuple[tuple[int, int], ...]


class _Frame(NamedTuple):
    """Values that derive from a pool's nodes alone; computed once for unchanged nodes."""

    rows: IntArray
    ids: tuple[str, ...]
    at: Mapping[str, int]
    offered: IntArray
    limits: IntArray
    empty_slots: IntArray
    empty_counts: dict[RequestedDevice, IntArray]
    needed_parts: dict[RequestedDevice, IntArray]
    empty_sums: dict[Signature, int]


class _PlacesByRow(NamedTuple):
    """The number of allocations of equal requests that fit on each row."""

    ask: GroupAsk
    places: IntArray
    total: int


class PoolCapacity:
    """Free amounts and devices of the ready nodes of a pool; `take` and `release` change them.

    An object may be kept: `follow` recounts only the rows that changed, and `copy` makes one to plan with.
    """

    def __init__(self, snapshot: Snapshot, pool: str) -> None:
        columns = snapshot.columns
        self._frame = frame = _frame(snapshot, pool)
        self._snapshot = snapshot
        self._ids, self._at, self.rows, self.offered = frame.ids, frame.at, frame.rows, frame.offered
        used = columns.used[frame.rows]
        self.free: IntArray = frame.offered - used[:, AMOUNTS]
        self._slots: IntArray = _slots(frame.limits, used[:, ALLOCS])
        self._in_use: dict[int, ExclusiveResources] = {}
        self._used_parts: dict[RequestedDevice, IntArray] = {}
        self._counts: dict[RequestedDevice, IntArray] = {}
        self._most: list[int] | None = None
        self._tables: dict[Signature, _PlacesByRow] = {}
        """Counts by request; most jobs of a queue have equal requests."""
        self._asks: dict[Signature, GroupAsk] = {}
        """Requests for which a copy was asked, so that the next copy has the answer."""

    def follow(self, snapshot: Snapshot, changed: Iterable[str]) -> bool:
        """Advance to a later state in which only the allocations of these nodes changed; False if a rebuild is
        necessary.

        Only for an object from which nothing was taken or released.
        """
        assert not (self._in_use or self._used_parts), "planned capacity belongs to no state"
        if snapshot.columns.nodes is not self._snapshot.columns.nodes:
            return False
        self._snapshot = snapshot
        rows = sorted(self._at[node_id] for node_id in set(changed) if node_id in self._at)
        if rows:
            self._recount(rows, snapshot.columns)
        return True

    def copy(self) -> PoolCapacity:
        """A copy for planning."""
        for ask in list(self._asks.values()):
            self._table(ask)
        self._asks.clear()
        made = copy(self)
        made.free, made._slots = self.free.copy(), self._slots.copy()
        made._in_use, made._used_parts = (
            dict(self._in_use),
            {key: parts.copy() for key, parts in self._used_parts.items()},
        )
        made._counts = {key: counts.copy() for key, counts in self._counts.items()}
        made._tables = {key: table._replace(places=table.places.copy()) for key, table in self._tables.items()}
        return made

    def places(self, ask: GroupAsk) -> IntArray:
        """The number of allocations that fit on each row."""
        return self._table(ask).places

    def total_places(self, ask: GroupAsk) -> int:
        """The number of allocations that would fit into an empty pool."""
        sums, key = self._frame.empty_sums, ask.signature
        total = sums.get(key)
        if total is None:
            total = sums[key] = int(self._places(ask, ALL_ROWS, is_empty=True).sum())
        return total

    def take(self, demands: Iterable[PendingAllocs]) -> dict[int, int]:
        """Take capacity for some groups, from the first rows on; returns the number by row. Empty: nothing fits."""
        number_by_row: dict[int, int] = {}
        for one in demands:
            table = self._table(one.ask)
            if table.total < max(1, one.least):
                continue
            remaining = one.number
            places = table.places
            for at in np.flatnonzero(places).tolist():
                number = min(remaining, int(places[at]))
                self._use(at, one.ask, number)
                number_by_row[at] = number_by_row.get(at, 0) + number
                remaining -= number
                if not remaining:
                    break
            self._refresh(list(number_by_row))
        return number_by_row

    def plan(self, demands: Iterable[PendingAllocs]) -> list[PlannedAllocs]:
        """As `take`, with what `first_release` gives back; groups without capacity are missing."""
        rows_by_ask = [(one.ask, self.take((one,))) for one in demands]
        return [PlannedAllocs(ask, tuple(rows.items())) for ask, rows in rows_by_ask if rows]

    def has_capacity(self, demands: Iterable[PendingAllocs]) -> bool:
        """Whether some group could place an allocation now."""
        return any(self._table(one.ask).total >= max(1, one.least) for one in demands)

    def first_release(self, demands: Sequence[PendingAllocs], ended: Sequence[Allocation | PlannedAllocs]) -> int:
        """The number of these allocations that must end, in order, until some group fits; -1 if ending all does not
        suffice.

        Only the row of each is recounted. Afterwards these allocations count as released.
        """
        sums = [self._table(one.ask).total for one in demands]
        first = -1
        for number, alloc in enumerate(ended, 1):
            for at in _rows_of(alloc, self._at):
                before = [self._row_places(at, one.ask) for one in demands]
                self._end(alloc, at)
                for index, one in enumerate(demands):
                    sums[index] += self._row_places(at, one.ask) - before[index]
            if any(total >= max(1, one.least) for total, one in zip(sums, demands, strict=True)):
                first = number
                break
        self._tables.clear()
        return first

    def _end(self, alloc: Allocation | PlannedAllocs, at: int) -> None:
        """Count an allocation as ended, without updating the tables."""
        if isinstance(alloc, PlannedAllocs):
            self._use(at, alloc.ask, -dict(alloc.rows)[at])
            return
        self._most = None
        usage = usage_of(alloc)
        self.free[at] += np.asarray((usage.cpu, usage.memory, usage.disk, len(usage.cores)))
        self._slots[at] += 1
        in_use = self._in_use.get(at)
        if in_use is None:
            in_use = self._snapshot.columns.in_use.get(self._ids[at], NOTHING_IN_USE)
        self._in_use[at] = with_usage(in_use, usage, -1)
        for request, counts in self._counts.items():
            counts[at] = _count(self._snapshot.nodes[self._ids[at]], request, self._in_use[at])

    def release(self, allocs: Iterable[Allocation | PlannedAllocs]) -> None:
        """Count allocations as ended."""
        for alloc in allocs:
            for at in _rows_of(alloc, self._at):
                self._end(alloc, at)
        self._tables.clear()

    def take_planned(self, planned: PlannedAllocs) -> None:
        """Take capacity where it was planned."""
        for at, number in planned.rows:
            self._use(at, planned.ask, number)
        self._refresh([at for at, _ in planned.rows])

    def fits_on_each(self, rows: Iterable[int], demands: Sequence[PendingAllocs]) -> bool:
        """Whether all of these allocations fit on each of these rows in addition to the taken capacity, whichever
        devices they get there."""
        amounts = sum((_amounts(one.ask) * one.number for one in demands), np.zeros(len(AMOUNTS), np.int64))
        number = sum(one.number for one in demands)
        requests = [(request, one.number * _parts(request)) for one in demands for _, request in one.ask.devices]
        for at in rows:
            if self._slots[at] < number or bool((self.free[at] < amounts).any()):
                return False
            if requests:
                rack = rack_of(self._snapshot.nodes[self._ids[at]])
                used = [(one, int(parts[at])) for one, parts in self._used_parts.items() if parts[at]]
                parts_of = {request: int(self._device_parts(request)[at]) for request, _ in requests}
                if not _has_spare_devices(rack, requests, used, parts_of):
                    return False
        return True

    def use_on(self, rows: Sequence[int], demands: Iterable[PendingAllocs]) -> None:
        """Subtract the amounts of all of these allocations from each of these rows, since they may land on any."""
        for at, (ask, number, _) in product(rows, demands):
            self.free[at] -= _amounts(ask) * number
            self._slots[at] -= number
            for _, request in ask.devices:
                parts = number * _parts(request)
                if request.all_of_node:
                    rack = rack_of(self._snapshot.nodes[self._ids[at]])
                    parts = CARD_PARTS * len(rack.matching(request))
                self._used_parts.setdefault(request, np.zeros_like(self._slots))[at] += parts

    def _table(self, ask: GroupAsk) -> _PlacesByRow:
        key = ask.signature
        table = self._tables.get(key)
        if table is None:
            if len(self._asks) < TABLES_MAX:
                self._asks[key] = ask
            if not self._may_fit(ask):
                # Where many jobs ask for different amounts of a full pool, no row has to be looked at for each.
                return _PlacesByRow(ask, np.zeros_like(self._slots), 0)
            places = self._places(ask, ALL_ROWS, is_empty=False)
            if len(self._tables) >= TABLES_MAX:
                del self._tables[next(iter(self._tables))]
            table = self._tables[key] = _PlacesByRow(ask, places, int(places.sum()))
        return table

    def _may_fit(self, ask: GroupAsk) -> bool:
        """Whether the largest free amounts of all rows suffice, ignoring that they may be on different rows."""
        if self._most is None:
            self._most = self.free.max(axis=0, initial=0).tolist()
        if any(required > free for required, free in zip(_amounts(ask).tolist(), self._most, strict=True)):
            return False
        return all(bool((self._device_parts(request) > 0).any()) for request in ask.needed_devices)

    def _refresh(self, changed: list[int]) -> None:
        """Recompute some rows in all tables."""
        self._most = None
        if not changed:
            return
        rows = np.asarray(changed, np.int64)
        for key, table in self._tables.items():
            now = self._places(table.ask, rows, is_empty=False)
            growth = int(now.sum()) - int(table.places[rows].sum())
            table.places[rows] = now
            if growth:
                assert table.total + growth >= 0, (table.total, growth, "the total is the sum of the rows' places")
                self._tables[key] = table._replace(total=table.total + growth)

    def _recount(self, changed: list[int], columns: Columns) -> None:
        """Read the allocations of some rows from the state again."""
        frame = self._frame
        rows = np.asarray(changed, np.int64)
        used = columns.used[frame.rows[rows]]
        self.free[rows] = frame.offered[rows] - used[:, AMOUNTS]
        self._slots[rows] = _slots(frame.limits[rows], used[:, ALLOCS])
        for request, counts in self._counts.items():
            for at in changed:
                counts[at] = _count(
                    self._snapshot.nodes[self._ids[at]], request, columns.in_use.get(self._ids[at], NOTHING_IN_USE)
                )
        self._refresh(changed)

    def _places(self, ask: GroupAsk, rows: IntArray | slice, *, is_empty: bool) -> IntArray:
        free = (self.offered if is_empty else self.free)[rows]
        slots = (self._frame.empty_slots if is_empty else self._slots)[rows]
        amounts = _amounts(ask)
        columns = np.flatnonzero(amounts)
        if len(columns):
            by_column = np.maximum(free[:, columns], 0) // amounts[columns]
            places: IntArray = np.minimum(by_column.min(axis=1), slots)
        else:
            places = slots.copy()
        for request in ask.needed_devices:
            places = np.minimum(places, self._device_places(request, rows, is_empty=is_empty))
        return np.maximum(places, 0)

    def _row_places(self, at: int, ask: GroupAsk) -> int:
        """The value of `places` for one row."""
        places = int(self._slots[at])
        for required, free in zip(_amounts(ask).tolist(), self.free[at].tolist(), strict=True):
            if required:
                places = min(places, max(0, free) // required)
        for request in ask.needed_devices:
            places = min(places, int(self._device_places(request, slice(at, at + 1), is_empty=False)[0]))
        return max(0, places)

    def _use(self, at: int, ask: GroupAsk, number: int) -> None:
        """Take capacity for `number` allocations; negative: give it back."""
        self._most = None
        self.free[at] -= _amounts(ask) * number
        self._slots[at] -= number
        for _, request in ask.devices:
            # All devices of a node are one allocation's: no other can be given back before, so the count is the same.
            counts = number * (self._device_parts(request) if request.all_of_node else self._needed_parts(request))
            self._used_parts.setdefault(request, np.zeros_like(self._slots))[at] += counts[at]

    def _device_places(self, request: RequestedDevice, rows: IntArray | slice, *, is_empty: bool) -> IntArray:
        """The number of allocations for which each row has enough devices."""
        counts = self._device_parts(request, is_empty=is_empty)[rows]
        others = [
            number[rows] for other, number in self._used_parts.items() if not is_empty and _overlap(other, request)
        ]
        used = np.asarray(sum(others, start=np.zeros_like(counts)))
        if request.all_of_node:
            empty_places: IntArray = ((counts > 0) & (used == 0)).astype(np.int64)
            return empty_places
        places: IntArray = np.maximum(counts - used, 0) // self._needed_parts(request)[rows]
        return places

    def _device_parts(self, request: RequestedDevice, *, is_empty: bool = False) -> IntArray:
        """The free devices of each row in parts of a card; those in `_used_parts` count as free."""
        present = self._frame.empty_counts if is_empty else self._counts
        counts = present.get(request)
        if counts is None and is_empty:
            counts = np.asarray(
                [_count(self._snapshot.nodes[self._ids[at]], request, NOTHING_IN_USE) for at in range(len(self._ids))],
                np.int64,
            )
        elif counts is None:
            counts = self._present_counts(request)
        present[request] = counts
        return counts

    def _needed_parts(self, request: RequestedDevice) -> IntArray:
        """The parts of a card that one allocation uses on each row."""
        parts = self._frame.needed_parts.get(request)
        if parts is None:
            nodes = self._snapshot.nodes
            each = [_parts(request, rack_of(nodes[node_id])) for node_id in self._ids]
            parts = self._frame.needed_parts[request] = np.asarray(each, np.int64)
        return parts

    def _present_counts(self, request: RequestedDevice) -> IntArray:
        """The device counts of all rows; those of unchanged nodes are cached."""
        lasting = self._snapshot.columns.nodes.lasting
        cached: dict[str, tuple[Node, ExclusiveResources, int]] = lasting.setdefault(("pool capacity", request), {})
        nodes, in_use = self._snapshot.nodes, self._snapshot.columns.in_use
        counts: list[int] = []
        for at, node_id in enumerate(self._ids):
            if at in self._in_use:
                counts.append(_count(self._snapshot.nodes[self._ids[at]], request, self._in_use[at]))
                continue
            node, now = nodes[node_id], in_use.get(node_id, NOTHING_IN_USE)
            entry = cached.get(node_id)
            if entry is None or entry[0] is not node or entry[1] is not now:
                entry = cached[node_id] = (node, now, _count(self._snapshot.nodes[self._ids[at]], request, now))
            counts.append(entry[2])
        return np.asarray(counts, np.int64)


def _rows_of(alloc: Allocation | PlannedAllocs, at: Mapping[str, int]) -> Iterable[int]:
    """The rows of an allocation, by the rows of nodes."""
    if isinstance(alloc, PlannedAllocs):
        return [row for row, _ in alloc.rows]
    row = at.get(alloc.node_id)
    return () if row is None else (row,)


def _count(node: Node, request: RequestedDevice, in_use: ExclusiveResources) -> int:
    """The free devices of a node for a request, in parts of a card."""
    if not node.node_resources.devices:
        return 0
    stock = Stock(node, in_use.devices)
    items = stock.matching(request)
    if request.share == MIG:
        return mig_places(stock, request) * _unit(request, stock.rack)
    if request.share:
        return sum(CARD_PARTS for item in items if not stock.of(item).is_whole)
    free = sum(1 for item in items if stock.is_free(item))
    return 0 if request.all_of_node and free < len(items) else free * CARD_PARTS


def _has_spare_devices(
    rack: Rack,
    requests: Sequence[tuple[RequestedDevice, int]],
    used: Sequence[tuple[RequestedDevice, int]],
    free: Mapping[RequestedDevice, int],
) -> bool:
    """Whether a node has devices for these requests in addition to the taken ones, whichever they get.

    Each request comes with the parts of cards that all of its allocations use; `free`: the free parts for each.

    Numbers decide only where all that compete for a device may have the same ones and are met by any of them. A share
    may begin to use a free card, a request without a model may take the only card of the model that another names, and
    of the devices that are left no two may be adjacent.
    """
    more = [(one, _mask(rack, one), parts) for one, parts in requests]
    before = [(one, _mask(rack, one), parts) for one, parts in used]
    for request, mask, _ in more:
        if not any(mask & other for _, other, _ in before):
            continue
        rivals = [each for each in (*before, *more) if mask & each[1]]
        if not all(other == mask and _is_met_by_any(rack, one) for one, other, _ in rivals):
            return False
        if sum(parts for _, _, parts in rivals) > free[request]:
            return False
    return True


def _parts(request: RequestedDevice, rack: Rack | None = None) -> int:
    """The parts of a card that one allocation uses; without a rack, of a MIG instance those of a whole card."""
    return max(1, request.count) * _unit(request, rack)


def _unit(request: RequestedDevice, rack: Rack | None) -> int:
    """The parts of one device or share."""
    if request.share == MIG:
        return CARD_PARTS // (1 if rack is None else max(1, mig_places_max(rack, request)))
    return CARD_PARTS // SHARES_PER_CARD if request.share else CARD_PARTS


def _mask(rack: Rack, request: RequestedDevice) -> int:
    """The devices that a request or its alternatives permit, booked or not."""
    mask = 0
    for kind in rack.kinds(request):
        mask |= kind.mask
    for other in request.first_available:
        mask |= _mask(rack, other)
    return mask


def _is_met_by_any(rack: Rack, request: RequestedDevice) -> bool:
    """Whether any `count` of the permitted devices meet a request together, if they are free."""
    topology = request.topology
    if request.all_of_node or request.share or request.first_available or request.constraints:
        return False
    if topology is not None and REQUIRE in (topology.nvlink, topology.numa):
        return False
    kinds = rack.kinds(request)
    # Several kinds together meet only a request that leaves the model open, and only by whole cards.
    is_mixed = request.name.count("/") < 2 and not any(kind.is_part for kind in kinds)
    return request.count < 2 or len(kinds) < 2 or is_mixed


def _overlap(one: RequestedDevice, other: RequestedDevice) -> bool:
    """Whether one device may meet both requests, because their types are equal."""
    return _type(one.name) == _type(other.name)


def _type(name: str) -> str:
    parts = name.split("/", 2)
    return parts[0] if len(parts) == 1 else parts[1]


def _amounts(ask: GroupAsk) -> IntArray:
    usage = ask.plain.usage
    return np.asarray((usage.cpu, usage.memory, usage.disk, ask.cores), np.int64)


def _slots(limit: IntArray, used: IntArray) -> IntArray:
    """The number of further allocations that the nodes' own limits allow."""
    return np.where(limit > 0, limit - used, 1 << 30)


def _frame(snapshot: Snapshot, pool: str) -> _Frame:
    """The pool's ready nodes."""
    nodes = snapshot.columns.nodes
    key = ("rows of a pool", pool)
    frame: _Frame | None = nodes.memo.get(key)
    if frame is None:
        number = nodes.pools.numbers.get(pool, -1)
        rows: IntArray = np.flatnonzero((nodes.offered[:, POOL] == number) & (nodes.offered[:, IS_READY] > 0))
        ids = tuple(nodes.ids[row] for row in rows.tolist())
        limits = nodes.offered[rows, ALLOCS]
        frame = nodes.memo[key] = _Frame(
            rows=rows,
            ids=ids,
            at={node_id: at for at, node_id in enumerate(ids)},
            offered=nodes.offered[rows][:, AMOUNTS],
            limits=limits,
            empty_slots=_slots(limits, np.zeros_like(limits)),
            empty_counts={},
            needed_parts={},
            empty_sums={},
        )
    return frame
