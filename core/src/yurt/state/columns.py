"""The columnar view: nodes as rows, their capacity and usage as read-only arrays.

The view is derived from the tables `nodes` and `allocs` and nothing else: it is outside digest and snapshot, kept
incrementally from the changes of each transaction, and equal to one that is rebuilt (`rebuild`). Chunks of rows are
copied on write, so a snapshot's columns stay true for ever. Row numbers and codes carry no meaning: two equal views
may number their rows differently, so ties are broken by `ties`, a hash of the node's id, never by row.
`memo` and `Codes` are caches that only grow by what follows from the columns themselves; readers in other threads see
complete entries.

A row exists while its node does, or while an allocation still uses a node that is gone. `used` counts every
allocation whose client has not ended it, also those that the servers have asked to stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import immutables
import numpy as np

from yurt.state.arrays import IntArray, TieArray, distinct, numbered, tally
from yurt.state.exclusive_resources import NOTHING_IN_USE, ExclusiveResources, content_of, with_usage
from yurt.state.namespace_usage import NamespaceKey, NamespaceUsages, namespace_key, with_usages
from yurt.state.row_history import RowHistory
from yurt.state.usage import AMOUNT_MAX, Usage, is_using, usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node
from yurt.structs.predicates import is_ready
from yurt.structs.status import CLIENT_TERMINAL

T = TypeVar("T", bound=Hashable)

CHUNK = 256
CPU, MEMORY, DISK, CORES, ALLOCS = range(5)
"""The columns of `used`, and the first of `offered`, where ALLOCS is the node's own limit (0: none)."""
USED_WIDTH = 5
MANY_ROWS = 48
"""From this number of rows on, amounts are added with numpy."""
IS_NODE, IS_READY, SHAPE, DATACENTER, POOL, NODE_CLASS = range(USED_WIDTH, USED_WIDTH + 6)
OFFERED_WIDTH = USED_WIDTH + 6

USED_BY: Final = attrgetter("namespace", "allocated_resources", "job", "task_group", "client_status")
"""Allocations with equal values in these fields have the same usage."""


class Shape(NamedTuple):
    """The part of a node that determines non-unique feasibility: equal shapes are checked once."""

    computed_class: str
    unclassed_id: str
    drivers: tuple[str, ...]
    networks: tuple[tuple[str, str], ...]
    host_networks: tuple[str, ...]
    volumes: tuple[tuple[str, bool], ...]
    devices: tuple[tuple[str, str, str, int], ...]


class Codes(Generic[T]):
    """Small numbers for values, in the order of first use; append-only."""

    __slots__ = ("numbers", "values")

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}
        self.values: list[T] = []

    def number(self, value: T) -> int:
        """The value's number."""
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Chunk(NamedTuple):
    """CHUNK rows; an empty id marks an unused row."""

    ids: tuple[str, ...]
    offered: IntArray
    used: IntArray
    ties: TieArray

    def with_used(self, used: IntArray) -> Chunk:
        """The same rows with a new usage."""
        assert used.shape == self.used.shape, (used.shape, self.used.shape)
        assert not used.flags.writeable, "the arrays of a snapshot never change (A8)"
        return Chunk(self.ids, self.offered, used, self.ties)


class NodeColumns:
    """All columns derived from nodes; shared by snapshots with equal nodes."""

    def __init__(
        self, chunks: tuple[Chunk, ...], *, before: NodeColumns | None = None, changed: Collection[int] = ()
    ) -> None:
        """Columns of these chunks; `before` differs in the rows `changed` and provides the codes' numbers."""
        self._chunks = chunks
        self.shapes: Codes[Shape] = before.shapes if before else Codes()
        self.datacenters: Codes[str] = before.datacenters if before else Codes()
        self.pools: Codes[str] = before.pools if before else Codes()
        self.classes: Codes[str] = before.classes if before else Codes()
        self._history: RowHistory
        self._place: int
        self._history, self._place = before._history.after(before._place, changed) if before else (RowHistory(), 0)
        self.memo: dict[Hashable, Any] = {}
        """Cached results that depend on these columns alone, by keys of the modules that use them."""
        self.lasting: dict[Hashable, Any] = before.lasting if before else {}
        """Cached results that stay valid for later columns: of shapes, or stored with the objects they describe."""
        self.names: dict[int, str] = {}
        """Names of nodes by row, filled as they are looked up."""

    @cached_property
    def offered(self) -> IntArray:
        """Capacity: OFFERED_WIDTH columns, a row per node."""
        return _joined([chunk.offered for chunk in self._chunks], OFFERED_WIDTH)

    @cached_property
    def ties(self) -> TieArray:
        """A hash of each node's id."""
        if not self._chunks:
            return np.zeros(0, np.uint64)
        return np.concatenate([chunk.ties for chunk in self._chunks])

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Node ids by row."""
        return tuple(chain.from_iterable(chunk.ids for chunk in self._chunks))

    @cached_property
    def shapes_in_use(self) -> IntArray:
        """The shape numbers of all nodes, in ascending order."""
        numbers: IntArray = np.bincount(self.offered[self.offered[:, IS_NODE] > 0, SHAPE]).nonzero()[0]
        return numbers

    def earlier(self, key: Hashable) -> tuple[Any, list[int]] | None:
        """A cached result for earlier columns, and the rows changed since then; None without one."""
        return self._history.earlier(key, self._place)

    def keep(self, key: Hashable, answer: Any) -> None:
        """Cache a result per row for later columns."""
        self._history.keep(key, self._place, answer)

    @cached_property
    def row_of_shape(self) -> dict[int, int]:
        """For each shape number in use, the row of one node with it."""
        rows = np.flatnonzero(self.offered[:, IS_NODE])
        numbers = self.offered[rows, SHAPE]
        _, firsts = numbered(numbers)
        return dict(zip(numbers[firsts].tolist(), rows[firsts].tolist(), strict=True))


class RowNumbers(NamedTuple):
    """The row of each node, and the unused rows."""

    by_node: immutables.Map[str, int] = immutables.Map()
    free: tuple[int, ...] = ()


class _CachedUsage(NamedTuple):
    """The joined usage of an earlier view, and the chunks changed since."""

    used: IntArray
    stale: frozenset[int]


class Columns:
    """Derived columns; immutable."""

    __slots__ = ("_cached", "_chunks", "_free", "_used", "by_namespace", "in_use", "nodes", "rows")

    def __init__(
        self,
        nodes: NodeColumns,
        chunks: tuple[Chunk, ...],
        *,
        rows: RowNumbers,
        in_use: immutables.Map[str, ExclusiveResources],
        by_namespace: NamespaceUsages,
        cached: _CachedUsage | None = None,
    ) -> None:
        by_node, free = rows
        assert len(by_node) + len(free) == len(chunks) * CHUNK, "each row belongs to a node or is free"
        self.nodes = nodes
        self.rows = by_node
        self.in_use = in_use
        self.by_namespace = by_namespace
        """The total usage of each namespace's allocations by node pool, without plans in flight."""
        self._chunks = chunks
        self._free = free
        self._cached = cached
        self._used: IntArray | None = None

    @classmethod
    def empty(cls) -> Columns:
        """No nodes."""
        return cls(NodeColumns(()), (), rows=RowNumbers(), in_use=immutables.Map(), by_namespace=immutables.Map())

    @classmethod
    def rebuild(cls, nodes: Iterable[Node], allocs: Iterable[Allocation]) -> Columns:
        """The columns of a complete state, as after a restore."""
        editor = _Editor(cls.empty())
        for node in nodes:
            editor.set_node(node.id, node)
        editor.count_new(allocs)
        return editor.finish()

    @property
    def used(self) -> IntArray:
        """Usage: USED_WIDTH columns, a row per node."""
        if self._used is None:
            cached = self._cached
            # Most transactions touch few chunks: copying the array of the view before and a few slices is much quicker
            # than joining all chunks.
            if cached is not None and len(cached.used) == len(self._chunks) * CHUNK:
                used = cached.used.copy(order="F")
                for number in cached.stale:
                    used[number * CHUNK : (number + 1) * CHUNK] = self._chunks[number].used
                used.flags.writeable = False
            else:
                used = _joined([chunk.used for chunk in self._chunks], USED_WIDTH)
            assert used.shape == (len(self._chunks) * CHUNK, USED_WIDTH), used.shape
            self._used, self._cached = used, None
        return self._used

    def used_on(self, row: int) -> list[int]:
        """The usage of one row."""
        amounts: list[int] = self._chunks[row // CHUNK].used[row % CHUNK].tolist()
        return amounts

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks, for comparison with later columns (`changed_rows`)."""
        return self._chunks

    def changed_rows(self, since: tuple[Chunk, ...]) -> list[int] | None:
        """The rows whose capacity or usage differs from earlier chunks; None when there are more rows now."""
        if len(since) != len(self._chunks):
            return None
        pairs = [
            (number, *pair)
            for number, pair in enumerate(zip(self._chunks, since, strict=True))
            if pair[0].used is not pair[1].used or pair[0].offered is not pair[1].offered
        ]
        rows = _differing([(number, now.used, then.used) for number, now, then in pairs], USED_WIDTH)
        if any(now.offered is not then.offered for _, now, then in pairs):
            offered = _differing([(number, now.offered, then.offered) for number, now, then in pairs], OFFERED_WIDTH)
            rows = sorted({*rows, *offered})
        return rows

    def cached_usage(self, stale: Iterable[int]) -> _CachedUsage | None:
        """The joined usage for a successor that differs in the chunks `stale`; None if too many differ."""
        if self._used is not None:
            return _CachedUsage(self._used, frozenset(stale))
        if self._cached is None:
            return None
        changed = self._cached.stale.union(stale)
        return _CachedUsage(self._cached.used, changed) if 2 * len(changed) <= len(self._chunks) else None

    def plus(self, sums: IntArray, numbers: Sequence[int]) -> Columns:
        """The columns plus amounts per row, which are zero except in the chunks `numbers`."""
        assert len(sums) == len(self._chunks) * CHUNK, (len(sums), len(self._chunks), "sums are by row")
        chunks = list(self._chunks)
        for number in numbers:
            used = chunks[number].used + sums[number * CHUNK : (number + 1) * CHUNK]
            used.flags.writeable = False
            chunks[number] = chunks[number].with_used(used)
        cached = self.cached_usage(numbers)
        return Columns(
            self.nodes,
            tuple(chunks),
            rows=RowNumbers(self.rows, self._free),
            in_use=self.in_use,
            by_namespace=self.by_namespace,
            cached=cached,
        )

    def with_usage_of(self, usage_rows: Iterable[tuple[Usage, Sequence[str]]]) -> Columns:
        """The columns plus usages, each on some nodes by id; nodes without a row are ignored."""
        editor = _Editor(self)
        for usage, node_ids in usage_rows:
            editor.take_all(usage, [node_id for node_id in node_ids if node_id in self.rows])
        return editor.finish()

    def apply(self, changes: Iterable[tuple[str, Any, Any, Any]]) -> Columns:
        """The columns after one or more transactions; a new allocation counts as the last of them leaves it."""
        editor: _Editor | None = None
        new: dict[str, Allocation | None] = {}
        for table, key, before, after in changes:
            # New allocations are gathered, because a plan's placements mostly share what they use: one sum for all.
            if table == "allocs" and (before is None or key in new):
                new[key] = after
            elif table == "allocs" and _is_usage_changed(before, after):
                editor = editor or _Editor(self)
                editor.count(before, -1)
                if after is not None:
                    editor.count(after, 1)
            elif table == "nodes" and _is_offer_changed(before, after):
                editor = editor or _Editor(self)
                editor.set_node(key, after)
        if new:
            editor = editor or _Editor(self)
            editor.count_new(each for each in new.values() if each is not None)
        return self if editor is None else editor.finish()

    def content(self) -> dict[str, tuple[object, ...]]:
        """The complete content by node id: equal views have equal content."""
        offered, used = self.nodes.offered, self.used
        return {
            node_id: (
                tuple(map(int, offered[row, :SHAPE])),
                self.nodes.shapes.values[offered[row, SHAPE]] if offered[row, IS_NODE] else None,
                self.nodes.datacenters.values[offered[row, DATACENTER]] if offered[row, IS_NODE] else None,
                self.nodes.pools.values[offered[row, POOL]] if offered[row, IS_NODE] else None,
                self.nodes.classes.values[offered[row, NODE_CLASS]] if offered[row, IS_NODE] else None,
                tuple(map(int, used[row])),
                content_of(self.in_use.get(node_id, NOTHING_IN_USE)),
            )
            for node_id, row in self.rows.items()
        }


class _Editor:
    """The edits of one transaction: amounts summed by row, each chunk copied once.

    Added usage is gathered by value, since most placements use the same: `_coming` has the rows of each usage. All
    else (removed usage, exclusive resources, rows of changed nodes) is summed up by row in `_sums`.
    """

    def __init__(self, base: Columns) -> None:
        self._base = base
        self._rows = base.rows.mutate()
        self._in_use = base.in_use.mutate()
        self._free = list(base._free)
        self._chunks: list[Chunk] = list(base._chunks)
        self._fresh: dict[int, tuple[list[str], IntArray, TieArray]] = {}
        self._fresh_used: dict[int, IntArray] = {}
        self._sums: dict[int, list[int]] = {}
        self._coming: dict[Usage, list[int]] = {}
        self._usages: dict[tuple[int, int, str], tuple[Usage, Allocation]] = {}
        """Usages by the identity of resources; the allocation keeps the object of the key alive."""
        self._of_namespaces: dict[NamespaceKey, dict[Usage, int]] = {}
        """The number of times that each usage is added (or removed) in a namespace and node pool."""
        self._changed: set[int] = set()
        """The rows of changed nodes."""

    def count(self, alloc: Allocation, sign: int) -> None:
        """Add or subtract an allocation's usage."""
        assert sign in (1, -1), sign
        if is_using(alloc):
            usage = self._usage(alloc)
            self.take(alloc.node_id, usage, sign)
            self._count_in_namespace(alloc, usage, sign)

    def count_new(self, allocs: Iterable[Allocation]) -> None:
        """Add new allocations' usage; consecutive equal usages are added together."""
        for _, group in groupby(allocs, key=USED_BY):
            alike = list(group)
            if alike[0].client_status not in CLIENT_TERMINAL:
                usage, node_ids = self._usage(alike[0]), [alloc.node_id for alloc in alike if alloc.node_id]
                self.take_all(usage, node_ids)
                self._count_in_namespace(alike[0], usage, len(node_ids))

    def _count_in_namespace(self, alloc: Allocation, usage: Usage, number: int) -> None:
        numbers = self._of_namespaces.setdefault(namespace_key(alloc), {})
        numbers[usage] = numbers.get(usage, 0) + number

    def _usage(self, alloc: Allocation) -> Usage:
        """The usage of an allocation; cached for equal resources."""
        key = (id(alloc.allocated_resources), id(alloc.job), alloc.task_group)
        cached = self._usages.get(key)
        if cached is None:
            cached = self._usages[key] = (usage_of(alloc), alloc)
        return cached[0]

    def take(self, node_id: str, usage: Usage, sign: int = 1) -> None:
        """Add or subtract a usage on a node."""
        row = self._row(node_id)
        if sign > 0 and not usage.is_exclusive:
            self._coming.setdefault(usage, []).append(row)
            return
        sums = self._sums.setdefault(row, [0] * USED_WIDTH)
        for column, amount in enumerate(usage.amounts):
            sums[column] += sign * amount
        if usage.is_exclusive:
            in_use = with_usage(self._in_use.get(node_id, NOTHING_IN_USE), usage, sign)
            if in_use == NOTHING_IN_USE:
                self._in_use.pop(node_id, None)
            else:
                self._in_use[node_id] = in_use

    def take_all(self, usage: Usage, node_ids: Sequence[str]) -> None:
        """Add a usage on each of these nodes."""
        if usage.is_exclusive:
            for node_id in node_ids:
                self.take(node_id, usage)
        else:
            existing = [row for row in map(self._rows.get, node_ids) if row is not None]
            rows = existing if len(existing) == len(node_ids) else map(self._row, node_ids)
            self._coming.setdefault(usage, []).extend(rows)

    def set_node(self, node_id: str, node: Node | None) -> None:
        """Set or clear a node's capacity."""
        row = self._row(node_id)
        self._changed.add(row)
        self._sums.setdefault(row, [0] * USED_WIDTH)
        _, offered, _ = self._chunk(row // CHUNK)
        offered[row % CHUNK] = 0
        if node is not None:
            offered[row % CHUNK] = self._offer(node)

    def finish(self) -> Columns:
        """The columns after the edits."""
        # Additions before removals: a row that becomes empty in between would lose its number.
        for usage, rows in self._coming.items():
            self._add(usage, rows)
        for row, sums in self._sums.items():
            used, at = self._used(row // CHUNK), row % CHUNK
            used[at] += sums
            # A deleted node keeps its row while allocations use it, until their clients report that they ended.
            if not self._offered(row // CHUNK)[at, IS_NODE] and not used[at, ALLOCS]:
                ids = self._chunk(row // CHUNK)[0]
                self._release(row, ids[at])
                ids[at], used[at] = "", 0
        for number, (ids, offered, ties) in self._fresh.items():
            offered.flags.writeable = ties.flags.writeable = False
            self._chunks[number] = Chunk(tuple(ids), offered, self._chunks[number].used, ties)
        for number, used in self._fresh_used.items():
            used.flags.writeable = False
            self._chunks[number] = self._chunks[number].with_used(used)
        chunks, nodes = tuple(self._chunks), self._base.nodes
        if self._changed:
            nodes = NodeColumns(chunks, before=nodes, changed=self._changed)
        return Columns(
            nodes,
            chunks,
            rows=RowNumbers(self._rows.finish() if self._changed else self._base.rows, tuple(self._free)),
            in_use=self._in_use.finish(),
            by_namespace=with_usages(self._base.by_namespace, self._of_namespaces),
            cached=self._base.cached_usage(self._fresh_used),
        )

    def _add(self, usage: Usage, rows: list[int]) -> None:
        """Add the usage to these rows, once per occurrence."""
        amounts = np.array(usage.amounts, np.int64)
        if len(rows) < MANY_ROWS:
            for row in rows:
                self._used(row // CHUNK)[row % CHUNK] += amounts
            return
        numbers, times = tally(np.array(rows, np.int64))
        sums = times[:, None] * amounts
        first = 0
        for chunk in np.flatnonzero(np.bincount(numbers // CHUNK)).tolist():
            end = int(np.searchsorted(numbers, (chunk + 1) * CHUNK))
            self._used(chunk)[numbers[first:end] - chunk * CHUNK] += sums[first:end]
            first = end

    def _row(self, node_id: str) -> int:
        row = self._rows.get(node_id)
        if row is not None:
            return row
        if not self._free:
            first = len(self._chunks) * CHUNK
            self._chunks.append(_empty_chunk())
            self._free.extend(range(first + CHUNK - 1, first - 1, -1))
        row = self._rows[node_id] = self._free.pop()
        self._changed.add(row)
        ids, _, ties = self._chunk(row // CHUNK)
        ids[row % CHUNK] = node_id
        ties[row % CHUNK] = tie_of(node_id)
        return row

    def _release(self, row: int, node_id: str) -> None:
        assert self._rows.get(node_id) == row, (node_id, row, "a row is given up by the node that has it")
        self._changed.add(row)
        self._rows.pop(node_id, None)
        self._free.append(row)

    def _chunk(self, number: int) -> tuple[list[str], IntArray, TieArray]:
        fresh = self._fresh.get(number)
        if fresh is None:
            chunk = self._chunks[number]
            fresh = self._fresh[number] = (list(chunk.ids), chunk.offered.copy(), chunk.ties.copy())
        return fresh

    def _offered(self, number: int) -> IntArray:
        fresh = self._fresh.get(number)
        return self._chunks[number].offered if fresh is None else fresh[1]

    def _used(self, number: int) -> IntArray:
        used = self._fresh_used.get(number)
        if used is None:
            used = self._fresh_used[number] = self._chunks[number].used.copy()
        return used

    def _offer(self, node: Node) -> tuple[int, ...]:
        nodes, has, keeps = self._base.nodes, node.node_resources, node.reserved_resources
        return (
            _net(has.cpu.cpu_shares, keeps.cpu.cpu_shares),
            _net(has.memory.memory_mb, keeps.memory.memory_mb),
            _net(has.disk.disk_mb, keeps.disk.disk_mb),
            len(has.cpu.reservable_cpu_cores),
            _net(node.node_max_allocs, 0),
            1,
            int(is_ready(node)),
            nodes.shapes.number(shape_of(node)),
            nodes.datacenters.number(node.datacenter),
            nodes.pools.number(node.node_pool),
            nodes.classes.number(node.node_class),
        )


def shape_of(node: Node) -> Shape:
    """A node's shape; a node without a computed class has a unique one."""
    return Shape(
        computed_class=node.computed_class,
        unclassed_id="" if node.computed_class else node.id,
        drivers=tuple(sorted(name for name, info in node.drivers.items() if info.detected and info.healthy)),
        networks=tuple(sorted({(network.mode, network.device) for network in node.node_resources.networks})),
        host_networks=tuple(sorted(node.host_networks)),
        volumes=tuple(sorted((name, volume.read_only) for name, volume in node.host_volumes.items())),
        devices=tuple(
            (d.vendor, d.type, d.name, sum(instance.healthy for instance in d.instances))
            for d in node.node_resources.devices
        ),
    )


def amounts_used(allocs: Iterable[Allocation]) -> list[int]:
    """The total usage of the allocations of one node, computed without the columns."""
    usages = [usage_of(alloc).amounts for alloc in allocs if is_using(alloc)]
    return [sum(column) for column in zip([0] * USED_WIDTH, *usages, strict=True)]


def tie_of(node_id: str) -> int:
    """A 64-bit tie-breaker that depends only on the id."""
    return int.from_bytes(hashlib.blake2b(node_id.encode(), digest_size=8).digest(), "big")


def _is_usage_changed(before: Allocation, after: Allocation | None) -> bool:
    if after is None or is_using(before) != is_using(after) or before.node_id != after.node_id:
        return True
    return before.allocated_resources is not after.allocated_resources or before.job is not after.job


def _is_offer_changed(before: Node | None, after: Node | None) -> bool:
    if before is None or after is None:
        return True
    return (
        before.node_resources != after.node_resources
        or before.reserved_resources != after.reserved_resources
        or before.node_max_allocs != after.node_max_allocs
        or is_ready(before) != is_ready(after)
        or before.datacenter != after.datacenter
        or before.node_pool != after.node_pool
        or before.node_class != after.node_class
        or before.attributes != after.attributes
        or before.meta != after.meta
        or before.name != after.name
        or before.host_networks != after.host_networks
        or before.csi_node_plugins != after.csi_node_plugins
        or shape_of(before) != shape_of(after)
    )


def _differing(pairs: list[tuple[int, IntArray, IntArray]], width: int) -> list[int]:
    """The numbers of rows that differ between pairs of chunks (number, now, then) of this width."""
    if not pairs:
        return []
    now, then = (np.concatenate([pair[side] for pair in pairs]) for side in (1, 2))
    places = np.flatnonzero(now != then) // width
    return [pairs[place // CHUNK][0] * CHUNK + place % CHUNK for place in distinct(places)]


def _net(total: int, reserved: int) -> int:
    return max(0, min(total, AMOUNT_MAX) - max(0, min(reserved, AMOUNT_MAX)))


def _empty_chunk() -> Chunk:
    return Chunk(
        ("",) * CHUNK,
        np.zeros((CHUNK, OFFERED_WIDTH), np.int64),
        np.zeros((CHUNK, USED_WIDTH), np.int64),
        np.zeros(CHUNK, np.uint64),
    )


def _joined(parts: list[IntArray], width: int) -> IntArray:
    """All rows in one array with contiguous columns, as scoring reads them."""
    whole: IntArray = np.empty((sum(map(len, parts)), width), np.int64, order="F")
    if parts:
        np.concatenate(parts, out=whole)
    whole.flags.writeable = False
    return whole
