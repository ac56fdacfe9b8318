"""Converts devices to the API's forms for nodes, allocations and usage. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from yurt.sdk.device import (
    AttributeValue,
    ClaimedDevices,
    DeviceGroup,
    DeviceInstance,
    DeviceUse,
    Quantity,
    Stat,
    device_of,
    share_number,
)
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.node import (
    Attribute,
    DeviceHealth,
    NodeDevice,
    NodeDeviceLocality,
    NodeDeviceResource,
    unhealthy_reason,
)
from yurt.structs.rpc import DeviceGroupStats, DeviceStats, StatObject, StatValue

MIB = 1024 * 1024
PROCESSES = "Memory by process"
PROCESS_UTILIZATION = "Utilization by process"
GroupKey = tuple[str, str, str]
"""The vendor, type and name of a device group."""


def key_of(group: DeviceGroup | NodeDeviceResource | AllocatedDeviceResource | ClaimedDevices) -> GroupKey:
    """The key of a device group."""
    return (group.vendor, group.type, group.name)


def group_name(key: GroupKey) -> str:
    """The name of a group in messages: `nvidia/gpu/NVIDIA H100`."""
    return "/".join(key)


def device_key(key: GroupKey, device: str) -> str:
    """A device's key in marks and records: `vendor/type/name/id`."""
    return "/".join((*key, device))


def node_group(group: DeviceGroup, health_of: Callable[[str], DeviceHealth]) -> NodeDeviceResource:
    """A group as its node publishes it; instances sorted by id, so that the same devices are the same value.

    `health_of` gives the health by the device's key.
    """
    key = key_of(group)
    return NodeDeviceResource(
        vendor=group.vendor,
        type=group.type,
        name=group.name,
        instances=tuple(
            node_device(each, health_of(device_key(key, each.id)))
            for each in sorted(group.instances, key=lambda each: each.id)
        ),
        attributes={name: attribute(value) for name, value in sorted(group.attributes.items())},
    )


def node_device(instance: DeviceInstance, health: DeviceHealth) -> NodeDevice:
    """An instance as its node publishes it."""
    reason = unhealthy_reason(health)
    return NodeDevice(
        id=instance.id,
        healthy=not reason,
        health_description=reason,
        health=health,
        locality=NodeDeviceLocality(pci_bus_id=instance.pci_bus_id) if instance.pci_bus_id else None,
        attributes={name: attribute(value) for name, value in sorted(instance.attributes.items())},
    )


def attribute(value: AttributeValue, unit: str = "") -> Attribute:
    """A plugin's attribute in the form of the API."""
    match value:
        case Quantity():
            return attribute(value.value, value.unit)
        case bool():
            return Attribute(bool_val=value, unit=unit)
        case int():
            return Attribute(int_val=value, unit=unit)
        case float():
            return Attribute(float_val=value, unit=unit)
        case str():
            return Attribute(string_val=value, unit=unit)


def claimed(device: AllocatedDeviceResource) -> ClaimedDevices:
    """The devices assigned to a task, by device id."""
    return ClaimedDevices(
        vendor=device.vendor,
        type=device.type,
        name=device.name,
        ids=tuple(device_of(each) for each in device.device_ids),
        share=device.share,
        memory_mb=device.memory_mb,
        compute=device.compute,
        numbers=tuple(share_number(each) for each in device.device_ids) if device.share else (),
    )


def group_stats(
    group: DeviceGroup, uses: Mapping[str, DeviceUse], only: Iterable[str] | None = None
) -> DeviceGroupStats | None:
    """Usage of a group's instances, or of those in `only`; None when none of them has figures."""
    requested = {each.id for each in group.instances} & (uses.keys() if only is None else set(only) & uses.keys())
    if not requested:
        return None
    instances = {each: device_stats(uses[each]) for each in sorted(requested)}
    return DeviceGroupStats(vendor=group.vendor, type=group.type, name=group.name, instance_stats=instances)


def device_stats(use: DeviceUse) -> DeviceStats:
    """Usage of one instance."""
    figures = {name: stat_value(stat) for name, stat in use.stats.items()}
    by_pid = {
        str(each.pid): StatValue(int_numerator_val=each.memory_bytes // MIB, unit="MiB", desc="Memory of the process")
        for each in use.processes
    }
    busy = {
        str(each.pid): StatValue(float_numerator_val=each.busy_percent, unit="%", desc="Time in which it computed")
        for each in use.processes
        if each.busy_percent is not None
    }
    named = ((PROCESSES, by_pid), (PROCESS_UTILIZATION, busy))
    nested = {name: StatObject(attributes=values) for name, values in named if values}
    return DeviceStats(
        summary=stat_value(use.summary), stats=StatObject(attributes=figures, nested=nested), timestamp=use.at
    )


def stat_value(stat: Stat) -> StatValue:
    """One usage figure; a part of a total has both values, in the type of the total."""
    value, whole, unit, description = stat.value, stat.of, stat.unit, stat.description
    match value:
        case bool():
            return StatValue(bool_val=value, unit=unit, desc=description)
        case str():
            return StatValue(string_val=value, unit=unit, desc=description)
        case int() if not isinstance(whole, float):
            return StatValue(int_numerator_val=value, int_denominator_val=whole, unit=unit, desc=description)
        case _:
            part_of = None if whole is None else float(whole)
            return StatValue(
                float_numerator_val=float(value), float_denominator_val=part_of, unit=unit, desc=description
            )
