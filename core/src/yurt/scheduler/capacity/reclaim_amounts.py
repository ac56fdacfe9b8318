"""The amounts that a guarantee may have to cover for an allocation that is not placed yet. Pure.

A share counts by its part of the device, as it will count in the quota once it is placed. The part depends on the card:
on its memory, and for a MIG instance on its profiles. So a share counts by the largest part of the pool's cards, a MIG
instance by the smallest sufficient profile of each. A node whose smallest one has no place left books a larger one,
which counts more. So this decides only what is looked at: what a node grants is checked again with what it books.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.devices.bookings import capacity_mb, modes_of, part_milli
from yurt.scheduler.devices.offers import is_named
from yurt.scheduler.devices.partitions import profiles_of
from yurt.sdk.device import MIG
from yurt.sdk.value import replace
from yurt.state.namespace_usage import MILLI, NamespaceUsage
from yurt.state.store import Snapshot
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.resources import RequestedDevice

ALL: Final = "all"
"""The pool of every node."""


def reclaim_amounts(ask: GroupAsk, snapshot: Snapshot, pool: str) -> NamespaceUsage:
    """The minimum usage of an allocation of jobs of a node pool, with parts of devices and the first alternatives."""
    least = ask.least_amounts
    devices = dict(least.devices)
    for _, request in ask.devices:
        one = request.first_available[0] if request.first_available else request
        if request.first_available or request.share:
            devices[one.name] = devices.get(one.name, 0) + max(1, one.count) * _part(one, snapshot, pool)
    return replace(least, devices=tuple(sorted(devices.items())))


def _part(request: RequestedDevice, snapshot: Snapshot, pool: str) -> int:
    """The largest part that a request may count, in thousandths of a device; a whole one where no node tells."""
    if not request.share:
        return MILLI
    amounts = (request.name, request.share, request.memory_mb, request.compute)
    of_compute = request.compute * MILLI // 100
    if not snapshot.stores_device_parts:
        return of_compute or MILLI
    memo, key = snapshot.columns.nodes.memo, ("part of a device", pool, *amounts)
    parts: int | None = memo.get(key)
    if parts is None:
        parts = memo[key] = max(_parts(request, snapshot, pool), default=0) or of_compute or MILLI
    return parts


def _parts(request: RequestedDevice, snapshot: Snapshot, pool: str) -> Iterator[int]:
    for node in snapshot.nodes.values():
        if pool not in ("", ALL, node.node_pool):
            continue
        for kind in node.node_resources.devices:
            if is_named(kind, request.name):
                yield from (_part_of(kind, instance, request) for instance in kind.instances)


def _part_of(kind: NodeDeviceResource, instance: NodeDevice, request: RequestedDevice) -> int:
    """The part of a card, of a card's smallest sufficient profile for a MIG instance; 0 where the card gives none."""
    if request.share not in modes_of(kind, instance) or capacity_mb(kind, instance) < request.memory_mb:
        return 0
    if request.share != MIG:
        return part_milli(kind, instance, request.memory_mb, request.compute)
    profiles = profiles_of(kind, instance)
    if not profiles:
        return MILLI  # An instance that was made by hand counts as a device.
    sufficient = ((each.memory_mb, each.compute) for each in profiles if each.memory_mb >= request.memory_mb)
    memory_mb, compute = min(sufficient, default=(0, 0))
    return part_milli(kind, instance, memory_mb, compute)
