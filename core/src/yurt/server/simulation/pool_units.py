"""What a node pool has for the jobs of a trace, and the allocations into which a job is split. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from yurt.scheduler.capacity.ask import mhz_of_core
from yurt.state import Snapshot
from yurt.state.usage import is_using, usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node

UNEVEN_FACTOR: Final = 8
"""A job is split into at most this multiple of the fewest allocations to make them exactly equal; a size with no such
divisor, as a large prime, is rounded up instead."""
SEARCHED_MAX: Final = 1_000
"""Numbers of allocations that are tried, at least; `UNEVEN_FACTOR` of the fewest may be more."""


class NodeAmounts(NamedTuple):
    """What a node has, or a job asks for: whole GPUs, reserved cores, MHz, MiB."""

    gpus: int = 0
    cores: int = 0
    cpu: int = 0
    memory_mb: int = 0

    def of(self, unit: str) -> int:
        """The amount in a unit of traces."""
        return {"gpu": self.gpus, "core": self.cores, "MHz": self.cpu}[unit]

    def less(self, other: NodeAmounts) -> NodeAmounts:
        """What is left without these amounts; none are negative."""
        return NodeAmounts(*(max(0, own - used) for own, used in zip(self, other, strict=True)))

    def part(self, count: int) -> NodeAmounts:
        """Each of `count` equal parts, rounded up."""
        return NodeAmounts(*(-(-amount // count) for amount in self))

    def least_parts(self, free: NodeAmounts) -> int:
        """The fewest equal parts of which each fits into `free`; 0 where none does."""
        parts = 1
        for required, has in zip(self, free, strict=True):
            if required and has <= 0:
                return 0
            parts = max(parts, -(-required // has) if required else 1)
        return parts

    def times_in(self, free: NodeAmounts) -> int:
        """How often it fits into `free`; it asks for something."""
        return min(has // required for required, has in zip(self, free, strict=True) if required)


class PoolUnits(NamedTuple):
    """The ready nodes of a pool: what each has for the jobs of a trace, and what allocations that stay keep of it."""

    free: tuple[NodeAmounts, ...]
    """Of each node, without what others keep."""
    reserved: NodeAmounts
    """The sum that services and system jobs keep."""

    def capacity(self, unit: str) -> int:
        """The units that jobs can have."""
        return sum(free.of(unit) for free in self.free)

    def split(self, required: NodeAmounts, size: int) -> Split:
        """The equal allocations of a job of this size (its amount in the unit of the trace).

        The fewest that the nodes hold all at once, or some more that divide the size exactly; else the fewest, rounded
        up.
        """
        if not any(required):
            return Split(1, False)
        return _split(tuple(sorted(Counter(self.free).items())), required, size)


class Split(NamedTuple):
    """`parts`: the number of a job's allocations; `is_rounded` where these ask for a little more than the job."""

    parts: int
    is_rounded: bool
    problem: str = ""
    """Why the nodes cannot hold the job in any equal parts, even if no other job runs."""


NO_NODE: Final = "no node has all of what it asks for, in however small parts"
TOO_FEW_UNITS: Final = "no node has all of what it asks for, in as many parts as it asks for units"
NOT_AT_ONCE: Final = "the nodes cannot hold all of its equal parts at once"


@lru_cache(maxsize=4096)
def _split(free: tuple[tuple[NodeAmounts, int], ...], required: NodeAmounts, size: int) -> Split:
    """As `PoolUnits.split`; `free` has the number of nodes with each amount. Traces repeat the same jobs."""

    def fits(count: int) -> bool:
        part = required.part(count)
        return sum(part.times_in(of_node) * nodes for of_node, nodes in free) >= count

    least = min((parts for of_node, _ in free if (parts := required.least_parts(of_node))), default=0)
    if not least:
        return Split(1, False, NO_NODE)
    if size and least > size:
        # Each part has at least one unit, so more parts than units would ask for more than the job.
        return Split(1, False, TOO_FEW_UNITS)
    most = max(UNEVEN_FACTOR * least, SEARCHED_MAX)
    counts = range(least, min(size, most) + 1 if size else most + 1)
    first = next((count for count in counts if fits(count)), 0)
    if not first:
        # In one part, which no node holds: a gang of which each part alone fits may seem startable to the queue.
        return Split(1, False, NOT_AT_ONCE)
    if not size:
        return Split(first, is_rounded=False)
    factors = (count for count in range(first, min(size, UNEVEN_FACTOR * first) + 1) if size % count == 0)
    exact = next((count for count in factors if fits(count)), 0)
    return Split(exact or first, is_rounded=not exact)


def pool_units(state: Snapshot, nodes: Sequence[Node]) -> PoolUnits:
    """The units of some nodes, less what allocations of the state use."""
    by_node: Mapping[str, list[Allocation]] = defaultdict(list)
    for alloc in state.allocs.values():
        if is_using(alloc):
            by_node[alloc.node_id].append(alloc)
    free = [_free(node, by_node.get(node.id, ())) for node in nodes]
    offered = [_free(node, ()) for node in nodes]
    return PoolUnits(tuple(free), _sum(offered).less(_sum(free)))


def _sum(amounts: Sequence[NodeAmounts]) -> NodeAmounts:
    return NodeAmounts(*(sum(each) for each in zip(*amounts, strict=True)))


def _free(node: Node, allocs: Iterable[Allocation]) -> NodeAmounts:
    """What allocations leave; a reserved core takes its MHz, and MHz that others take leave fewer cores to reserve."""
    free = _offered(node).less(_used(node, allocs))
    per_core = mhz_of_core(node)
    return free._replace(cores=min(free.cores, free.cpu // per_core)) if per_core else free


def _offered(node: Node) -> NodeAmounts:
    resources, reserved = node.node_resources, node.reserved_resources
    return NodeAmounts(
        gpus=len(_healthy_gpus(node)),
        cores=len(resources.cpu.reservable_cpu_cores),
        cpu=resources.cpu.cpu_shares - reserved.cpu.cpu_shares,
        memory_mb=resources.memory.memory_mb - reserved.memory.memory_mb,
    )


def _used(node: Node, allocs: Iterable[Allocation]) -> NodeAmounts:
    """A card of which a part is shared counts as used: jobs of traces take whole ones."""
    gpus, usages = _healthy_gpus(node), [(alloc, usage_of(alloc)) for alloc in allocs]
    device_ids = {
        instance.partition("::")[0]
        for alloc, _ in usages
        for task in alloc.allocated_resources.tasks.values()
        for device in task.devices
        for instance in device.device_ids
    }
    return NodeAmounts(
        gpus=len(device_ids & gpus),
        cores=len({core for _, usage in usages for core in usage.cores}),
        cpu=sum(usage.cpu for _, usage in usages),
        memory_mb=sum(usage.memory for _, usage in usages),
    )


def _healthy_gpus(node: Node) -> set[str]:
    return {
        instance.id
        for device in node.node_resources.devices
        if device.type == "gpu"
        for instance in device.instances
        if instance.healthy
    }
