"""Device topology: the adjacency of a node's devices.

A node's devices, their NVLink connections, NUMA nodes and distances are a `Layout`. `choose` finds the set that is best
for the task and then leaves most behind: fewest pairs that NVLink does not join, fewest NUMA nodes, most links,
shortest ways over PCIe, and then the largest groups that remain free for others, so that single devices are taken from
groups that are broken already. Suspect devices come last of all. Sets are bit masks over the layout's devices.

Devices that nothing tells apart are counted, not enumerated: with NVSwitch, eight of them are one or two classes. Only
machines with very many different devices are searched greedily (`SETS_MAX`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from yurt.scheduler.devices.attributes import number_of, text_of
from yurt.structs.node import NodeDevice, NodeDeviceResource

PREFER, REQUIRE, IGNORE = "prefer", "require", "ignore"
SETS_MAX = 20_000
"""The maximum number of sets that are compared; beyond it, devices are added one by one."""
CACHED_MAX = 4096
_LEVELS = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""Kinds of connection between two devices, nearest first, as `nvidia-smi topo` names them."""
UNKNOWN_NODE = -1
PLACES = frozenset({"numa_node", "nvlink_peers", "nvlink_links", "topology"})
"""Attributes with the location of an instance."""

Cost = tuple[int, int, int, int, int, int]
Candidate = tuple[Cost, tuple[int, ...]]
Matrix = tuple[tuple[int, ...], ...]


class TopologyRequest(msgspec.Struct, frozen=True):
    """The number of devices, their required or preferred adjacency, and the mask of devices that come last."""

    number: int
    nvlink: str = PREFER
    numa: str = PREFER
    last: int = 0


class Layout:
    """The topology of one node's devices; shared by all equal nodes."""

    def __init__(self, numa: tuple[int, ...], links: Matrix, distances: Matrix) -> None:
        self.numa = numa
        self.links = links
        self.distances = distances
        self.size = len(numa)
        assert len(links) == len(distances) == self.size, (numa, links, distances, "each device has a row and a column")
        self.has_links = any(any(row) for row in links)
        self.has_places = self.has_links or len(set(numa)) > 1 or any(any(row) for row in distances)
        self.islands = _islands(links)
        self.classes = _classes(self)
        self.cache: dict[tuple[int, int, TopologyRequest], int | None] = {}

    def cost(self, chosen: Sequence[int], free: int, wish: TopologyRequest) -> Cost:
        """The cost of a set of devices; lower is better."""
        apart = joined = ways = 0
        for at, one in enumerate(chosen):
            links, distances = self.links[one], self.distances[one]
            for other in chosen[at + 1 :]:
                apart += not links[other]
                joined += links[other]
                ways += distances[other]
        if wish.nvlink == IGNORE or not self.has_links:
            apart = joined = 0
        nodes = len({self.numa[one] for one in chosen}) if wish.numa != IGNORE else 0
        mask = mask_of(chosen)
        return ((mask & wish.last).bit_count(), apart, nodes, -joined, ways, -self.wholeness(free & ~mask))

    def wholeness(self, free: int) -> int:
        """The fragmentation measure of free devices: the sum of squared sizes, by NUMA node and by NVLink island."""
        nodes: dict[int, int] = {}
        islands: dict[int, int] = {}
        for one in members(free):
            nodes[self.numa[one]] = nodes.get(self.numa[one], 0) + 1
            islands[self.islands[one]] = islands.get(self.islands[one], 0) + 1
        return sum(n * n for n in nodes.values()) + sum(n * n for n in islands.values())

    def is_allowed(self, chosen: Sequence[int], wish: TopologyRequest) -> bool:
        """Whether a set meets the requirement."""
        if wish.numa == REQUIRE and len({self.numa[one] for one in chosen}) > 1:
            return False
        if wish.nvlink != REQUIRE:
            return True
        return all(self.links[one][other] for at, one in enumerate(chosen) for other in chosen[at + 1 :])

    def quality(self, chosen: Sequence[int], wish: TopologyRequest) -> float:
        """1 for the closest possible set, 0 for one without any adjacency."""
        parts = []
        pairs = len(chosen) * (len(chosen) - 1) // 2
        if pairs and wish.nvlink != IGNORE:
            parts.append(1 - self.cost(chosen, 0, wish)[1] / pairs if self.has_links else 0.0)
        if chosen and wish.numa != IGNORE:
            parts.append(1 / len({self.numa[one] for one in chosen}))
        return sum(parts) / len(parts) if parts else 0.0


def choose(layout: Layout, allowed: int, free: int, wish: TopologyRequest) -> int | None:
    """The best set of this size among allowed devices; None if none meets the request. `free` are all free devices."""
    key = (allowed, free, wish)
    if key not in layout.cache:
        if len(layout.cache) >= CACHED_MAX:
            layout.cache.clear()
        mask = layout.cache[key] = _search(layout, allowed, free, wish)
        if mask is not None:
            assert not mask & ~allowed and mask.bit_count() == wish.number, (mask, allowed, wish)
    return layout.cache[key]


def mask_of(chosen: Iterable[int]) -> int:
    """The set as a mask."""
    mask = 0
    for one in chosen:
        mask |= 1 << one
    return mask


def members(mask: int) -> list[int]:
    """The devices of a mask, in ascending order."""
    return [one for one in range(mask.bit_length()) if mask >> one & 1]


def _search(layout: Layout, allowed: int, free: int, wish: TopologyRequest) -> int | None:
    if allowed.bit_count() < wish.number:
        return None
    classes = [within for group in layout.classes if (within := _in_order(group, allowed, wish.last))]
    number = math.comb(allowed.bit_count(), wish.number)
    if number > SETS_MAX and _vectors(classes, wish.number) > SETS_MAX:
        return _greedy(layout, allowed, free, wish)
    best: Candidate | None = None
    for numbers in _sets(classes, wish.number):
        chosen = tuple(sorted(numbers))
        if not layout.is_allowed(chosen, wish):
            continue
        candidate = (layout.cost(chosen, free, wish), chosen)
        if best is None or candidate < best:
            best = candidate
    return None if best is None else mask_of(best[1])


def _in_order(group: Sequence[int], allowed: int, last: int) -> list[int]:
    """The allowed devices of a class, of which the first are used."""
    return sorted((one for one in group if allowed >> one & 1), key=lambda one: last >> one & 1)


def _sets(classes: Sequence[Sequence[int]], count: int) -> Iterator[tuple[int, ...]]:
    """Sets with different numbers of devices from each class; within a class the first devices are used."""
    if not classes:
        if not count:
            yield ()
        return
    first, rest = classes[0], classes[1:]
    remaining = sum(len(group) for group in rest)
    for number in range(max(0, count - remaining), min(len(first), count) + 1):
        for others in _sets(rest, count - number):
            yield (*first[:number], *others)


def _vectors(classes: Sequence[Sequence[int]], count: int) -> int:
    """The number of sets that `_sets` would yield."""
    ways = [1] + [0] * count
    for group in classes:
        ways = [sum(ways[max(0, total - len(group)) : total + 1]) for total in range(count + 1)]
    return ways[count]


def _greedy(layout: Layout, allowed: int, free: int, wish: TopologyRequest) -> int | None:
    """Greedy search: from each device, add the cheapest one repeatedly; returns the best set."""
    pool = members(allowed)
    best: Candidate | None = None
    for first in pool:
        chosen: tuple[int, ...] = (first,)
        while len(chosen) < wish.number:
            wider = (tuple(sorted((*chosen, one))) for one in pool if one not in chosen)
            extended = [each for each in wider if layout.is_allowed(each, wish)]
            if not extended:
                break
            chosen = min(extended, key=lambda each: (layout.cost(each, free, wish), each))
        candidate = (layout.cost(chosen, free, wish), chosen)
        if len(chosen) == wish.number and (best is None or candidate < best):
            best = candidate
    return None if best is None else mask_of(best[1])


def _islands(links: Matrix) -> tuple[int, ...]:
    """The number of each device's NVLink island."""
    islands = list(range(len(links)))
    for one, row in enumerate(links):
        for other, count in enumerate(row):
            if count and islands[one] != islands[other]:
                low, high = sorted((islands[one], islands[other]))
                islands = [low if island == high else island for island in islands]
    return tuple(islands)


def _classes(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Groups of devices with equal topology."""
    classes: list[list[int]] = []
    for one in range(layout.size):
        group = next((group for group in classes if _is_same(layout, group[0], one)), None)
        if group is None:
            classes.append([one])
        else:
            group.append(one)
    return tuple(tuple(group) for group in classes)


def _is_same(layout: Layout, one: int, other: int) -> bool:
    if layout.numa[one] != layout.numa[other] or layout.islands[one] != layout.islands[other]:
        return False
    return all(
        layout.links[one][third] == layout.links[other][third]
        and layout.distances[one][third] == layout.distances[other][third]
        for third in range(layout.size)
        if third not in (one, other)
    )


# -- from a node's devices ---------------------------------------------------------------------------------------------

_layouts: dict[tuple[tuple[int, ...], Matrix, Matrix], Layout] = {}
"""A cache, since nodes with equal layouts share the object."""


def layout_of(devices: tuple[NodeDeviceResource, ...]) -> Layout:
    """The topology of all instances of a node, in the order of its groups."""
    key = _key([(kind, instance) for kind in devices for instance in kind.instances])
    layout = _layouts.get(key)
    if layout is None:
        if len(_layouts) >= CACHED_MAX:
            _layouts.clear()
        layout = _layouts[key] = Layout(*key)
    return layout


def _key(instances: Sequence[tuple[NodeDeviceResource, NodeDevice]]) -> tuple[tuple[int, ...], Matrix, Matrix]:
    size = len(instances)
    if not any(PLACES & (kind.attributes.keys() | instance.attributes.keys()) for kind, instance in instances):
        empty = ((0,) * size,) * size
        return (UNKNOWN_NODE,) * size, empty, empty
    ids = {instance.id: number for number, (_, instance) in enumerate(instances)}
    links, distances = [[0] * size for _ in instances], [[0] * size for _ in instances]
    for number, (kind, instance) in enumerate(instances):
        counts = _pairs(text_of(kind, instance, "nvlink_links"))
        for peer in _words(text_of(kind, instance, "nvlink_peers")):
            counts.setdefault(peer, "1")
        for peer, count in counts.items():
            _join(links, number, ids.get(peer), int(count) if count.isdigit() else 1)
        for peer, level in _pairs(text_of(kind, instance, "topology")).items():
            _join(distances, number, ids.get(peer), _LEVELS.get(level, 0))
    nodes = tuple(_node(kind, instance) for kind, instance in instances)
    return nodes, tuple(map(tuple, links)), tuple(map(tuple, distances))


def _join(matrix: list[list[int]], one: int, other: int | None, value: int) -> None:
    if other is not None and other != one:
        matrix[one][other] = matrix[other][one] = max(value, matrix[one][other])


def _node(kind: NodeDeviceResource, instance: NodeDevice) -> int:
    number = number_of(kind, instance, "numa_node")
    return UNKNOWN_NODE if number is None else int(number)


def _words(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _pairs(text: str | None) -> dict[str, str]:
    """Parses `a=1,b=2`."""
    return {name: value for name, _, value in (word.rpartition("=") for word in _words(text)) if name}
