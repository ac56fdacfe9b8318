"""Facts of one node: its derived status, its resources, and how much of them is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from yurt.scheduler.devices.bookings import COMPUTE_MAX, NOTHING, Booked, bookings, capacity_mb, instance_key, parted
from yurt.sdk.value import Value, no_entries
from yurt.state.exclusive_resources import NOTHING_IN_USE
from yurt.state.store import Snapshot
from yurt.state.usage import device_key, is_using
from yurt.structs import status
from yurt.structs.alloc import AllocatedDeviceResource, Allocation
from yurt.structs.node import Node, NodeDevice, NodeDeviceResource, shown_state

READY: Final = "ready"
DRAINING: Final = "draining"
UNHEALTHY: Final = "unhealthy"
CERTIFICATE_ENDS: Final = "unique.tls.certificate_ends"
AUTHORITY_ENDS: Final = "unique.tls.authority_ends"
"""Attributes of nodes whose agents have certificates."""

STATUSES: Final = (
    status.NODE_DOWN, status.NODE_DISCONNECTED, UNHEALTHY, DRAINING, status.INELIGIBLE, status.NODE_INIT, READY,
)  # fmt: skip
"""All words, most urgent first."""


class NodeFacts(Value):
    """One row of a list of nodes; amounts exclude what the node reserves for itself."""

    id: str = ""
    name: str = ""
    status: str = ""
    pool: str = ""
    datacenter: str = ""
    node_class: str = ""
    allocations: int = 0
    cpu: int = 0
    cpu_used: int = 0
    memory_mb: int = 0
    memory_used_mb: int = 0
    disk_mb: int = 0
    disk_used_mb: int = 0
    cores: int = 0
    cores_used: int = 0
    cards: int = 0
    cards_used: int = 0
    vram_mb: int = 0
    vram_used_mb: int = 0
    unhealthy_cards: int = 0
    reserved_cpu: int = 0
    reserved_memory_mb: int = 0
    version: str = ""
    node_status: str = ""
    eligibility: str = ""
    is_draining: bool = False
    drain_deadline: int = 0
    address: str = ""
    os: str = ""
    arch: str = ""
    drivers: tuple[str, ...] = ()
    unhealthy_drivers: tuple[str, ...] = ()
    host_volumes: tuple[str, ...] = ()
    last_event: str = ""
    last_event_time: int = 0
    status_updated_at: int = 0
    certificate_ends: int = 0
    """When the certificate of its agent ends, in seconds since 1970; 0 without TLS."""
    authority_ends: int = 0
    """When the certificate of the agent's authority does."""
    create_index: int = 0
    modify_index: int = 0
    meta: Mapping[str, str] = no_entries()
    attributes: Mapping[str, str] = no_entries()
    searched: str = ""
    """The text for searches, in lower case."""


class Cards(NamedTuple):
    """The devices of a node together."""

    number: int = 0
    used: int = 0
    vram_mb: int = 0
    vram_used_mb: int = 0
    unhealthy: int = 0


def node_status(node: Node) -> str:
    """The derived status of a node, one word."""
    if node.status != status.NODE_READY:
        return node.status
    if node.drain_strategy is not None:
        return DRAINING
    if not any(driver.healthy for driver in node.drivers.values()):
        return UNHEALTHY
    return READY if node.scheduling_eligibility == status.ELIGIBLE else status.INELIGIBLE


def node_facts(state: Snapshot, node: Node) -> NodeFacts:
    """The facts of a node."""
    columns = state.columns
    row = columns.rows.get(node.id)
    used = [0] * 5 if row is None else columns.used_on(row)
    has, keeps = node.node_resources, node.reserved_resources
    cards = _cards(node, columns.in_use.get(node.id, NOTHING_IN_USE).devices)
    event = node.events[-1] if node.events else None
    drain = node.drain_strategy
    return NodeFacts(
        id=node.id, name=node.name, status=node_status(node), pool=node.node_pool, datacenter=node.datacenter,
        node_class=node.node_class, allocations=used[4],
        cpu=max(0, has.cpu.cpu_shares - keeps.cpu.cpu_shares), cpu_used=used[0],
        memory_mb=max(0, has.memory.memory_mb - keeps.memory.memory_mb), memory_used_mb=used[1],
        disk_mb=max(0, has.disk.disk_mb - keeps.disk.disk_mb), disk_used_mb=used[2],
        cores=len(has.cpu.reservable_cpu_cores), cores_used=used[3], cards=cards.number, cards_used=cards.used,
        vram_mb=cards.vram_mb, vram_used_mb=cards.vram_used_mb, unhealthy_cards=cards.unhealthy,
        reserved_cpu=keeps.cpu.cpu_shares, reserved_memory_mb=keeps.memory.memory_mb,
        version=node.attributes.get("nomad.version", ""), node_status=node.status,
        eligibility=node.scheduling_eligibility, is_draining=drain is not None,
        drain_deadline=0 if drain is None else drain.force_deadline, address=node.http_addr,
        os=node.attributes.get("os.name", ""), arch=node.attributes.get("cpu.arch", ""),
        drivers=tuple(sorted(name for name, info in node.drivers.items() if info.healthy)),
        unhealthy_drivers=tuple(sorted(n for n, info in node.drivers.items() if info.detected and not info.healthy)),
        host_volumes=tuple(sorted(node.host_volumes)), last_event="" if event is None else event.message,
        last_event_time=0 if event is None else event.timestamp, status_updated_at=node.status_updated_at,
        certificate_ends=_seconds(node.attributes.get(CERTIFICATE_ENDS, "")),
        authority_ends=_seconds(node.attributes.get(AUTHORITY_ENDS, "")),
        create_index=node.create_index, modify_index=node.modify_index, meta=node.meta, attributes=node.attributes,
        searched="\0".join((node.id, node.name, node.node_pool, node.datacenter, node.node_class)).casefold(),
    )  # fmt: skip


def _seconds(text: str) -> int:
    """A time of an attribute in seconds since 1970; 0 for a missing or invalid time."""
    try:
        return int(datetime.fromisoformat(text).timestamp()) if text else 0
    except ValueError:
        return 0


def _instances(node: Node) -> Iterable[tuple[NodeDeviceResource, NodeDevice]]:
    return ((kind, each) for kind in node.node_resources.devices for each in kind.instances)


def _cards(node: Node, in_use: frozenset[str]) -> Cards:
    if not node.node_resources.devices:
        return Cards()
    booked, found = bookings(in_use), Cards()
    for kind, instance in _instances(node):
        mine, size_mb = booked.get(instance_key(kind, instance.id), NOTHING), capacity_mb(kind, instance)
        found = Cards(
            found.number + 1,
            found.used + (not mine.is_free),
            found.vram_mb + size_mb,
            found.vram_used_mb + _vram_used(mine, size_mb),
            found.unhealthy + (not instance.healthy),
        )
    return found


def _vram_used(booked: Booked, size_mb: int) -> int:
    return size_mb if booked.is_whole else booked.memory_mb


def card_list(state: Snapshot, node: Node, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Each device of a node with its users; those in hidden namespaces have no names."""
    holders = _holders(state.allocs.each_where("node", node.id), sees)
    booked = bookings(state.columns.in_use.get(node.id, NOTHING_IN_USE).devices)
    found = []
    for kind, instance in _instances(node):
        key, size_mb = instance_key(kind, instance.id), capacity_mb(kind, instance)
        mine = booked.get(key, NOTHING)
        found.append({
            "ID": instance.id, "Vendor": kind.vendor, "Type": kind.type, "Name": kind.name,
            "Healthy": instance.healthy, "Problem": instance.health_description,
            "State": shown_state(instance, node.device_marks.get(key)),
            "Bus": "" if instance.locality is None else instance.locality.pci_bus_id,
            "VRAMMB": size_mb, "VRAMUsedMB": _vram_used(mine, size_mb),
            "ComputeUsed": COMPUTE_MAX if mine.is_whole else mine.compute, "Holders": holders.get(key, []),
        })  # fmt: skip
    return found


def _holders(allocs: Iterable[Allocation], sees: Callable[[str], bool]) -> dict[str, list[dict[str, Any]]]:
    """The users of a device, by its key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for alloc in filter(is_using, allocs):
        names = {"AllocID": alloc.id, "Namespace": alloc.namespace, "JobID": alloc.job_id}
        is_named = sees(alloc.namespace)
        for task, given in alloc.allocated_resources.tasks.items():
            named = {**names, "Task": task}
            for key, share in map(parted, _device_keys(given.devices)):
                found.setdefault(key, []).append({
                    **(named if is_named else dict.fromkeys(named, "")),
                    "VRAMMB": 0 if share is None else share.memory_mb,
                    "Compute": COMPUTE_MAX if share is None else share.compute,
                })  # fmt: skip
    return found


def _device_keys(devices: Iterable[AllocatedDeviceResource]) -> Iterable[str]:
    return (device_key(device, instance) for device in devices for instance in device.device_ids)
