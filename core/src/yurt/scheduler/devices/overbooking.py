"""Finds devices that are booked beyond what they have; the plan applier refuses such plans."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.devices.bookings import (
    COMPUTE_MAX,
    SHARES_MAX,
    Booked,
    bookings,
    capacity_mb,
    instance_key,
    parted,
)
from yurt.scheduler.devices.partitions import booked_slices, profiles_of
from yurt.sdk.device import MIG
from yurt.structs.node import Node, NodeDevice, NodeDeviceResource


def overbooked(node: Node, in_use: Iterable[str], coming: Iterable[str]) -> str:
    """The reason why devices of the usage `coming` are overbooked, or ""; `in_use` includes it."""
    device_ids = {parted(key)[0] for key in coming}
    if not device_ids:
        return ""
    instances = {
        instance_key(kind, instance.id): (kind, instance)
        for kind in node.node_resources.devices
        for instance in kind.instances
    }
    for device, booked in sorted(bookings(in_use).items()):
        if device in device_ids and booked.shares:
            reason = _excess(booked, instances.get(device))
            if reason:
                return reason
    return ""


def _excess(booked: Booked, device: tuple[NodeDeviceResource, NodeDevice] | None) -> str:
    numbers = [share.number for share in booked.shares]
    if booked.is_whole or device is None or len(booked.modes) > 1 or len(set(numbers)) < len(numbers):
        return "device oversubscribed"
    if MIG in booked.modes:
        return "device oversubscribed" if booked_slices(profiles_of(*device), booked) is None else ""
    if booked.memory_mb > capacity_mb(*device):
        return "device memory oversubscribed"
    return "device compute oversubscribed" if booked.compute > COMPUTE_MAX or len(numbers) > SHARES_MAX else ""
