"""The amounts that a guarantee may have to cover for an allocation that is not placed yet. Pure.

A share counts by its part of the device, as it will count in the quota once it is placed. The profile of a MIG instance
depends on the card, so it counts by the largest of the smallest sufficient profiles of the pool's cards. A node whose
smallest one has no place left books a larger one, which counts more. So this decides only what is looked at: what a
node grants is checked again with what it books.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.devices.bookings import capacity_mb, modes_of
from yurt.scheduler.devices.offers import is_named
from yurt.scheduler.devices.partitions import profiles_of
from yurt.sdk.device import MIG
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
    return least._replace(devices=tuple(sorted(devices.items())))


def _part(request: RequestedDevice, snapshot: Snapshot, pool: str) -> int:
    """Thousandths of a device; a share of memory alone counts as a whole one."""
    if request.share == MIG:
        return _instance_part(request, snapshot, pool)
    return request.compute * MILLI // 100 if request.share and request.compute else MILLI


def _instance_part(request: RequestedDevice, snapshot: Snapshot, pool: str) -> int:
    """The largest part that a MIG instance may count; a whole device where no node has one."""
    memo, key = snapshot.columns.nodes.memo, ("part of a MIG instance", pool, request.name, request.memory_mb)
    found: int | None = memo.get(key)
    if found is None:
        found = memo[key] = max(_instance_parts(request, snapshot, pool), default=0) or MILLI
    return found


def _instance_parts(request: RequestedDevice, snapshot: Snapshot, pool: str) -> Iterator[int]:
    for node in snapshot.nodes.values():
        if pool not in ("", ALL, node.node_pool):
            continue
        for kind in node.node_resources.devices:
            if is_named(kind, request.name):
                yield from (_part_of(kind, instance, request.memory_mb) for instance in kind.instances)


def _part_of(kind: NodeDeviceResource, instance: NodeDevice, memory_mb: int) -> int:
    """The part of a card's smallest sufficient profile; an instance that was made by hand counts as a device."""
    profiles = profiles_of(kind, instance)
    if profiles:
        sufficient = ((each.memory_mb, each.compute) for each in profiles if each.memory_mb >= memory_mb)
        return min(sufficient, default=(0, 0))[1] * MILLI // 100
    is_instance = MIG in modes_of(kind, instance) and capacity_mb(kind, instance) >= memory_mb
    return MILLI if is_instance else 0
