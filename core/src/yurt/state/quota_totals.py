"""The usage of a quota: the sums over its namespaces' allocations, variables and host volumes.

Allocations are summed by the columnar view. Variables and host volumes are counted when somebody asks: they are few,
and found by their namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from yurt.state.namespace_usage import MILLI, NOTHING_USED, NamespaceUsage
from yurt.state.store import Snapshot
from yurt.structs.quota import QuotaSpec
from yurt.structs.volumes.host import HostVolume

ALL_POOLS: Final = "all"
"""The pool of jobs that may run in any; they count under the limits of every pool."""
MIB: Final = 1 << 20


DEPTH_MAX: Final = 8
"""The maximum number of quotas from a root to a leaf."""


def chain_of(snapshot: Snapshot, quota: str) -> tuple[QuotaSpec, ...]:
    """A quota and those above it; ends before a missing one and before one met already."""
    specs: dict[str, QuotaSpec] = {}
    spec = snapshot.quotas.get(quota) if quota else None
    while spec is not None and spec.name not in specs and len(specs) < DEPTH_MAX:
        specs[spec.name] = spec
        spec = snapshot.quotas.get(spec.parent) if spec.parent else None
    return tuple(specs.values())


def members_of(snapshot: Snapshot, quota: str) -> tuple[str, ...]:
    """The namespaces that count under a quota, sorted: those that name it or a quota below it."""
    own = snapshot.namespaces.keys_where("quota", quota)
    level, depth = snapshot.quotas.keys_where("parent", quota), 1
    if not level:
        return own
    names = set(own)
    while level and depth < DEPTH_MAX:
        names.update(name for each in level for name in snapshot.namespaces.keys_where("quota", each))
        level = tuple(name for each in level for name in snapshot.quotas.keys_where("parent", each))
        depth += 1
    return tuple(sorted(names))


def counts_in(pool: str, of_job: str) -> bool:
    """Whether the jobs of a pool count under a pool's limits; a job without a known pool counts everywhere."""
    return not pool or of_job in (pool, ALL_POOLS, "")


def used_by(snapshot: Snapshot, namespaces: Iterable[str], pool: str = "") -> NamespaceUsage:
    """The usage of the allocations of some namespaces, in one node pool or in all."""
    usages, total = snapshot.columns.by_namespace, NOTHING_USED
    for namespace in namespaces:
        for of_job, usage in usages.get(namespace, {}).items():
            if counts_in(pool, of_job):
                total = total.plus(usage)
    return total


def devices_used(used: NamespaceUsage, limit: str) -> int:
    """Thousandths of devices that match a limit's name: "type", "vendor/type" or "vendor/type/name"."""
    return sum(amount for name, amount in used.devices if is_covered(name, limit))


def is_covered(device: str, limit: str) -> bool:
    """Whether a device, or every device that a request allows, matches the name of a limit."""
    limit_parts, has = limit.split("/", 2), device.split("/", 2)
    if len(limit_parts) == 1:
        return limit_parts[0] == (has[0] if len(has) == 1 else has[1])
    return limit_parts == has[: len(limit_parts)]


def may_be_covered(device: str, limit: str) -> bool:
    """Whether a device, or some device that a request allows, matches the name of a limit."""
    limit_parts, device_parts = limit.split("/", 2), device.split("/", 2)
    if len(limit_parts) == 1 or len(device_parts) == 1:
        return limit_parts[min(1, len(limit_parts) - 1)] == device_parts[min(1, len(device_parts) - 1)]
    return all(one == other for one, other in zip(limit_parts, device_parts, strict=False))


def whole(milli: int) -> int:
    """The number of devices, of which parts count as one."""
    return -(-milli // MILLI)


def variables_bytes(snapshot: Snapshot, namespaces: Iterable[str]) -> int:
    """The size of the encrypted variables of some namespaces."""
    rows = snapshot.variables.each_where
    return sum(len(variable.data) for namespace in namespaces for variable in rows("namespace", namespace))


def host_volumes_bytes(snapshot: Snapshot, namespaces: Iterable[str]) -> int:
    """The capacity of the host volumes of some namespaces, as granted or at least requested."""
    names = frozenset(namespaces)
    return sum(size_of_volume(row) for row in snapshot.host_volumes.values() if row.namespace in names)


def size_of_volume(volume: HostVolume) -> int:
    """The bytes for which a host volume counts: its capacity, or the requested size while that is unknown."""
    return volume.capacity_bytes or volume.requested_capacity_max_bytes or volume.requested_capacity_min_bytes


def mib_of(size: int) -> int:
    """Bytes as MiB, rounded up, so that a quota shows even little usage."""
    return -(-size // MIB)
