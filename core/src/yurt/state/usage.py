"""The usage of one allocation on its node: amounts that add up, and exclusive resources.

Tasks that never run together share: the sum is the sidecars plus the largest of what the prestart tasks, the main
tasks, and the poststop tasks ask. Ports, cores and device instances are exclusive: two holders of one
of them collide. So are host volumes that a group asks to write alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.status import CLIENT_TERMINAL

SINGLE_WRITER = frozenset({"single-node-writer", "single-node-single-writer"})
"""Access modes that allow one user per node."""
AMOUNT_MAX = 1 << 53
"""The maximum of an amount; larger ones are cut, so that no sum overflows a column."""

KNOWN_MAX = 128
_cache: dict[tuple[int, int], tuple[AllocatedResources, TaskGroup | None, Usage]] = {}
"""The last results by identity: several steps read a plan, and its placements share their resources. Two batches of a
worker fit; more entries would keep groups of old jobs in memory."""

PortKey = tuple[str, int]


class Usage(NamedTuple):
    """Amounts in MHz and MiB; ports as (address, port); devices as from `device_key`."""

    cpu: int = 0
    memory: int = 0
    disk: int = 0
    cores: tuple[int, ...] = ()
    ports: tuple[PortKey, ...] = ()
    devices: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    """Host volumes that it writes exclusively."""
    tolerant: tuple[PortKey, ...] = ()
    """Ports that it uses even if another allocation has them (`ignore_collision`)."""
    memory_max: int = 0
    """The hard limits on memory, MiB; nodes do not count them, quotas do."""
    secrets: int = 0

    @property
    def amounts(self) -> tuple[int, int, int, int, int]:
        """The amounts of the columns `CPU, MEMORY, DISK, CORES, ALLOCS`."""
        return (self.cpu, self.memory, self.disk, len(self.cores), 1)

    @property
    def is_exclusive(self) -> bool:
        """Whether it contains exclusive resources."""
        return bool(self.ports or self.cores or self.devices or self.volumes)


def is_using(alloc: Allocation) -> bool:
    """Whether an allocation uses its resources: until its client reports that it ended."""
    return alloc.client_status not in CLIENT_TERMINAL and bool(alloc.node_id)


def usage_of(alloc: Allocation) -> Usage:
    """The usage of a running allocation."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return usage_of_resources(alloc.allocated_resources, group)


def usage_of_resources(resources: AllocatedResources, group: TaskGroup | None) -> Usage:
    """The usage of granted resources; the group tells which tasks run concurrently."""
    key = (id(resources), id(group))
    cached = _cache.get(key)
    if cached is not None and cached[0] is resources and cached[1] is group:
        return cached[2]
    usage = _computed(resources, group)
    if len(_cache) >= KNOWN_MAX:
        _cache.clear()
    _cache[key] = (resources, group, usage)
    return usage


def forget_usages() -> None:
    """Drop the cached usages, which would keep resources and groups of deleted allocations."""
    _cache.clear()


def _computed(resources: AllocatedResources, group: TaskGroup | None) -> Usage:
    sums = _task_sums(resources, group)
    disk = _bounded(resources.shared.disk_mb)
    assert min(*sums, disk) >= 0, (sums, disk, "no allocation gives a node more than it has")
    secrets = 0 if group is None else sum(_bounded(task.resources.secrets_mb) for task in group.tasks)
    return Usage(
        cpu=sums[0],
        memory=sums[1],
        disk=disk,
        cores=tuple(
            sorted({c for task in resources.tasks.values() for c in task.cpu.reserved_cores if 0 <= c < 65536})
        ),
        ports=tuple(_ports(resources)),
        devices=tuple(
            device_key(device, instance)
            for task in resources.tasks.values()
            for device in task.devices
            for instance in device.device_ids
        ),
        volumes=single_writer_volumes(group) if group is not None else (),
        tolerant=tuple(_tolerant(resources)),
        memory_max=sums[2],
        secrets=secrets,
    )


def device_key(device: AllocatedDeviceResource, instance: str) -> str:
    """The key of a booked instance; a share's key includes its amounts, so that sums need no lookup."""
    key = f"{device.vendor}/{device.type}/{device.name}/{instance}"
    return f"{key}|{device.share}|{device.memory_mb}|{device.compute}" if device.share else key


def single_writer_volumes(group: TaskGroup) -> tuple[str, ...]:
    """The host volumes that a group requests with a single writer."""
    return tuple(
        sorted(
            {
                volume.source
                for volume in group.volumes.values()
                if volume.type == "host" and volume.access_mode in SINGLE_WRITER and not volume.read_only
            }
        )
    )


def _task_sums(resources: AllocatedResources, group: TaskGroup | None) -> tuple[int, int, int]:
    """The sums over tasks: CPU in MHz, memory and its hard limits in MiB."""
    sidecar, prestart, main, poststop = [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]
    for name, given in resources.tasks.items():
        task = group.task(name) if group is not None else None
        lifecycle = task.lifecycle if task is not None else None
        if lifecycle is None or lifecycle.hook not in ("prestart", "poststop"):
            sums = main
        elif lifecycle.hook == "poststop":
            sums = poststop
        else:
            sums = sidecar if lifecycle.sidecar else prestart
        sums[0] += _bounded(given.cpu.cpu_shares)
        sums[1] += _bounded(given.memory.memory_mb)
        sums[2] += _bounded(max(given.memory.memory_mb, given.memory.memory_max_mb))
    cpu, memory, memory_max = (
        alone + max(parts) for alone, *parts in zip(sidecar, prestart, main, poststop, strict=True)
    )
    return cpu, memory, memory_max


def _bounded(amount: int) -> int:
    return 0 if amount < 0 else min(amount, AMOUNT_MAX)


def _tolerant(resources: AllocatedResources) -> Iterable[PortKey]:
    """The static ports that may collide, including those granted at other addresses under the same label."""
    fixed = [port for network in resources.shared.networks for port in network.reserved_ports if port.ignore_collision]
    labels = {port.label for port in fixed}
    yield from ((mapping.host_ip, mapping.value) for mapping in resources.shared.ports if mapping.label in labels)
    for task in resources.tasks.values():
        for network in task.networks:
            yield from ((network.ip, port.value) for port in network.reserved_ports if port.ignore_collision)


def _ports(resources: AllocatedResources) -> Iterable[PortKey]:
    shared = resources.shared
    found: list[PortKey] = [(mapping.host_ip, mapping.value) for mapping in shared.ports]
    networks = [network for task in resources.tasks.values() for network in task.networks]
    if not found:
        networks.extend(shared.networks)
    for network in networks:
        found.extend((network.ip, port.value) for port in (*network.reserved_ports, *network.dynamic_ports))
    return dict.fromkeys(key for key in found if 0 < key[1] < 65536)
