"""The usage of one allocation on its node: amounts that add up, and exclusive resources.

Tasks that never run together share: the sum is the sidecars plus the largest of what the prestart tasks, the main
tasks, and the poststop tasks ask. Ports, cores and device instances are exclusive: two holders of one
of them collide. So are host volumes that a group asks to write alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, AllocatedSharedResources, Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.status import CLIENT_TERMINAL
from yurt.structs.task import TaskLifecycle
from yurt.structs.volumes.host_access import EXCLUSIVE_MODES, HOST

AMOUNT_MAX = 1 << 53
"""The maximum of an amount; larger ones are cut, so that no sum overflows a column."""
CORES_MAX: Final = 65_536
PORTS_MAX: Final = 65_536
SIDECAR, PRESTART, MAIN, POSTSTOP = range(4)
"""The phases of an allocation: sidecars run through all of them, the tasks of the others never meet."""
PHASES: Final = 4
AMOUNT_DIGITS_MAX: Final = 19
"""The digits of the largest integer of 64 bits."""

CACHED_MAX = 128
_cache: dict[tuple[int, int], tuple[AllocatedResources, TaskGroup | None, Usage]] = {}
"""The last results by identity: several steps read a plan, and its placements share their resources. Two batches of a
worker fit; more entries would keep groups of old jobs in memory."""

PortKey = tuple[str, int]


class Usage(msgspec.Struct, frozen=True):
    """Amounts in MHz and MiB; ports as (address, port); devices as from `device_key`."""

    cpu: int = 0
    memory: int = 0
    disk: int = 0
    cores: tuple[int, ...] = ()
    ports: tuple[PortKey, ...] = ()
    devices: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    """Host volumes that it writes exclusively, without those of its own (`per_alloc`)."""
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
    if len(_cache) >= CACHED_MAX:
        _cache.clear()
    _cache[key] = (resources, group, usage)
    return usage


def forget_usages() -> None:
    """Drop the cached usages, which would keep resources and groups of deleted allocations."""
    _cache.clear()
    _groups.clear()


class _GroupPart(msgspec.Struct, frozen=True):
    """The part of a group in the usage of each of its allocations."""

    phases: Mapping[str, int]
    """The phase of each task."""
    volumes: tuple[str, ...] = ()
    secrets: int = 0


NO_GROUP: Final = _GroupPart({})
_groups: dict[int, tuple[TaskGroup, _GroupPart]] = {}
"""The parts of the last groups, by identity."""


def _group_part(group: TaskGroup) -> _GroupPart:
    cached = _groups.get(id(group))
    if cached is not None and cached[0] is group:
        return cached[1]
    phases, secrets = {}, 0
    # In reverse: of tasks with the same name the first one counts.
    for task in reversed(group.tasks):
        phases[task.name] = MAIN if task.lifecycle is None else _phase(task.lifecycle)
        secrets += _bounded(task.resources.secrets_mb)
    part = _GroupPart(phases, single_writer_volumes(group), secrets)
    if len(_groups) >= CACHED_MAX:
        _groups.clear()
    _groups[id(group)] = (group, part)
    return part


def _phase(lifecycle: TaskLifecycle) -> int:
    if lifecycle.hook not in ("prestart", "poststop"):
        return MAIN
    if lifecycle.hook == "poststop":
        return POSTSTOP
    return SIDECAR if lifecycle.sidecar else PRESTART


def _computed(resources: AllocatedResources, group: TaskGroup | None) -> Usage:
    part = NO_GROUP if group is None else _group_part(group)
    cpu, memory, memory_max = [0] * PHASES, [0] * PHASES, [0] * PHASES
    cores: set[int] = set()
    devices: list[str] = []
    for name, task_resources in resources.tasks.items():
        phase = part.phases.get(name, MAIN)
        cpu[phase] += _bounded(task_resources.cpu.cpu_shares)
        memory[phase] += _bounded(task_resources.memory.memory_mb)
        memory_max[phase] += _bounded(max(task_resources.memory.memory_mb, task_resources.memory.memory_max_mb))
        cores.update(task_resources.cpu.reserved_cores)
        for device in task_resources.devices:
            devices.extend([device_key(device, instance) for instance in device.device_ids])
    ports, tolerant = _ports(resources)
    # The most that runs concurrently.
    peaks = [each[SIDECAR] + max(each[PRESTART], each[MAIN], each[POSTSTOP]) for each in (cpu, memory, memory_max)]
    usage = Usage(
        cpu=peaks[0],
        memory=peaks[1],
        disk=_bounded(resources.shared.disk_mb),
        cores=tuple(sorted(core for core in cores if 0 <= core < CORES_MAX)) if cores else (),
        ports=ports,
        devices=tuple(devices),
        volumes=part.volumes,
        tolerant=tolerant,
        memory_max=peaks[2],
        secrets=part.secrets,
    )
    assert min(usage.amounts) >= 0, (usage, "no allocation gives a node more than it has")
    return usage


class BookedShare(msgspec.Struct, frozen=True):
    """The content of the key of a share."""

    instance: str
    """The key of the device, with the number of the share."""
    mode: str
    memory_mb: int
    compute: int
    part_milli: int
    """0: unknown."""


def device_key(device: AllocatedDeviceResource, instance: str) -> str:
    """The key of a booked instance; a share's key includes its amounts, so that sums need no lookup."""
    key = f"{device.vendor}/{device.type}/{device.name}/{instance}"
    if not device.share:
        return key
    part = f"|{device.part_milli}" if device.part_milli else ""
    return f"{key}|{device.share}|{device.memory_mb}|{device.compute}{part}"


def share_of(key: str) -> BookedShare | None:
    """The share that a key of `device_key` describes; None for a whole device."""
    # Names may contain the separator, so amounts are read from the end: three with a part, else two.
    for amounts in (3, 2) if "|" in key else ():
        parts = key.rsplit("|", amounts + 1)
        if len(parts) == amounts + 2 and all(map(_is_amount, parts[2:])):
            memory_mb, compute, *part = map(int, parts[2:])
            return BookedShare(parts[0], parts[1], memory_mb, compute, part[0] if part else 0)
    return None


def _is_amount(text: str) -> bool:
    """Whether `device_key` may have written it; for `isdigit` alone also "²" is a digit, which `int` refuses."""
    return len(text) <= AMOUNT_DIGITS_MAX and text.isascii() and text.isdigit()


def single_writer_volumes(group: TaskGroup) -> tuple[str, ...]:
    """The host volumes that each allocation of a group requests with a single writer.

    Without those that differ between its allocations (`per_alloc`): see `state.host_volumes.has_other_writer`.
    """
    if not group.volumes:
        return ()
    return tuple(
        sorted(
            {
                volume.source
                for volume in group.volumes.values()
                if volume.type == HOST
                and volume.access_mode in EXCLUSIVE_MODES
                and not (volume.read_only or volume.per_alloc)
            }
        )
    )


def _bounded(amount: int) -> int:
    return amount if 0 <= amount <= AMOUNT_MAX else max(0, min(amount, AMOUNT_MAX))


def _ports(resources: AllocatedResources) -> tuple[tuple[PortKey, ...], tuple[PortKey, ...]]:
    """The ports, and those of them that may collide."""
    shared = resources.shared
    networks = [network for task in resources.tasks.values() for network in task.networks]
    if not (networks or shared.networks or shared.ports):
        return (), ()
    tolerant = tuple(_tolerant(shared, networks))
    keys: list[PortKey] = [(mapping.host_ip, mapping.value) for mapping in shared.ports]
    if not keys:
        networks.extend(shared.networks)
    for network in networks:
        keys.extend((network.ip, port.value) for port in (*network.reserved_ports, *network.dynamic_ports))
    return tuple(dict.fromkeys(key for key in keys if 0 < key[1] < PORTS_MAX)), tolerant


def _tolerant(shared: AllocatedSharedResources, networks: Iterable[NetworkResource]) -> Iterator[PortKey]:
    """The static ports that may collide, including those granted at other addresses under the same label."""
    fixed = [port for network in shared.networks for port in network.reserved_ports if port.ignore_collision]
    labels = {port.label for port in fixed}
    yield from ((mapping.host_ip, mapping.value) for mapping in shared.ports if mapping.label in labels)
    for network in networks:
        yield from ((network.ip, port.value) for port in network.reserved_ports if port.ignore_collision)
