"""What a node pool has for the jobs of a trace, and the allocations into which a job is split. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.state import Snapshot
from yurt.state.usage import is_using, usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node

UNEVEN_FACTOR: Final = 8
"""A job is split into at most this multiple of the fewest allocations to make them exactly equal; a size with no such
divisor, as a large prime, is rounded up instead."""


class NodeAmounts(NamedTuple):
    """What a node has, or a job asks for: whole GPUs, reserved cores, MHz, MiB."""

    gpus: int = 0
    cores: int = 0
    cpu: int = 0
    memory_mb: int = 0

    def of(self, unit: str) -> int:
        """The amount in a unit of traces."""
        return {"gpu": self.gpus, "core": self.cores, "MHz": self.cpu}[unit]

    def least_parts(self, free: NodeAmounts) -> int:
        """The fewest equal parts of which each fits into `free`; 0 where none does."""
        parts = 1
        for asked, has in zip(self, free, strict=True):
            if asked and has <= 0:
                return 0
            parts = max(parts, -(-asked // has) if asked else 1)
        return parts


class PoolUnits(NamedTuple):
    """The ready nodes of a pool: what each has for the jobs of a trace, and what allocations that stay keep of it."""

    free: tuple[NodeAmounts, ...]
    """Of each node, without what others keep."""
    kept: NodeAmounts
    """The sum that services and system jobs keep."""

    def capacity(self, unit: str) -> int:
        """The units that jobs can have."""
        return sum(free.of(unit) for free in self.free)

    def split(self, asked: NodeAmounts, size: int) -> Split:
        """The equal allocations of a job of this size (its amount in the unit of the trace).

        The fewest that fit on some node, or some more that divide the size exactly; else the fewest, rounded up.
        """
        least = min((parts for free in set(self.free) if (parts := asked.least_parts(free))), default=0)
        if not least:
            return Split(1, False, fits=False)
        most = min(size, UNEVEN_FACTOR * least) if size else least
        exact = next((count for count in range(least, most + 1) if size % count == 0), 0)
        return Split(exact or least, is_rounded=not exact)


class Split(NamedTuple):
    """`parts`: the number of a job's allocations; `is_rounded` where these ask for a little more than the job."""

    parts: int
    is_rounded: bool
    fits: bool = True
    """Whether a node exists that has everything of which the job asks for some."""


def pool_units(state: Snapshot, nodes: Sequence[Node]) -> PoolUnits:
    """The units of some nodes, less what allocations of the state use."""
    by_node: Mapping[str, list[Allocation]] = defaultdict(list)
    for alloc in state.allocs.values():
        if is_using(alloc):
            by_node[alloc.node_id].append(alloc)
    kept = [_used(node, by_node.get(node.id, ())) for node in nodes]
    free = tuple(NodeAmounts(*(max(0, a - b) for a, b in zip(_offered(node), used, strict=True))) for node, used in
                 zip(nodes, kept, strict=True))  # fmt: skip
    return PoolUnits(free, NodeAmounts(*(sum(each) for each in zip(*kept, strict=True))))


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
    gpus, found = _healthy_gpus(node), [(alloc, usage_of(alloc)) for alloc in allocs]
    held = {
        instance.partition("::")[0]
        for alloc, _ in found
        for task in alloc.allocated_resources.tasks.values()
        for device in task.devices
        for instance in device.device_ids
    }
    return NodeAmounts(
        gpus=len(held & gpus),
        cores=len({core for _, usage in found for core in usage.cores}),
        cpu=sum(usage.cpu for _, usage in found),
        memory_mb=sum(usage.memory for _, usage in found),
    )


def _healthy_gpus(node: Node) -> set[str]:
    return {
        instance.id
        for device in node.node_resources.devices
        if device.type == "gpu"
        for instance in device.instances
        if instance.healthy
    }
