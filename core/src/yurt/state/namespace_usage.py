"""The total usage of a namespace's allocations, as quotas count it.

A part of the columnar view: derived from the allocations, kept up with each transaction, one sum for all placements of
a plan that use the same. An allocation counts until its client has ended it, as on its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import immutables
import msgspec

from yurt.state.usage import Usage, is_using, share_of, usage_of
from yurt.structs.alloc import Allocation

NamespaceKey = tuple[str, str]
"""(namespace, node pool of the job)."""
MILLI: Final = 1000
"""Thousandths of a device: a booked share is counted as a part of it."""


class NamespaceUsage(msgspec.Struct, frozen=True):
    """Amounts in MHz, cores and MiB; devices in thousandths by "vendor/type/name", sorted."""

    cpu: int = 0
    cores: int = 0
    memory: int = 0
    memory_max: int = 0
    secrets: int = 0
    allocs: int = 0
    devices: tuple[tuple[str, int], ...] = ()

    def plus(self, other: NamespaceUsage, times: int = 1) -> NamespaceUsage:
        """The sum with `times` another; `times` may be negative."""
        devices = self.devices
        if other.devices:
            sums = dict(devices)
            for name, amount in other.devices:
                sums[name] = sums.get(name, 0) + times * amount
            devices = tuple(sorted((name, amount) for name, amount in sums.items() if amount))
        return NamespaceUsage(
            self.cpu + times * other.cpu,
            self.cores + times * other.cores,
            self.memory + times * other.memory,
            self.memory_max + times * other.memory_max,
            self.secrets + times * other.secrets,
            self.allocs + times * other.allocs,
            devices,
        )


NOTHING_USED: Final = NamespaceUsage()
NamespaceUsages = immutables.Map[str, Mapping[str, NamespaceUsage]]
"""Usage by namespace and node pool; those without allocations are missing."""


def namespace_key(alloc: Allocation) -> NamespaceKey:
    """The namespace and node pool under which an allocation counts."""
    return alloc.namespace, alloc.job.node_pool if alloc.job is not None else ""


def counted(usage: Usage) -> NamespaceUsage:
    """The usage of one allocation as quotas count it."""
    return NamespaceUsage(
        usage.cpu,
        len(usage.cores),
        usage.memory,
        usage.memory_max,
        usage.secrets,
        1,
        _devices(usage.devices) if usage.devices else (),
    )


def with_usages(usages: NamespaceUsages, changes: Mapping[NamespaceKey, Mapping[Usage, int]]) -> NamespaceUsages:
    """The sums after adding or removing a number of each usage."""
    if not changes:
        return usages
    editor = usages.mutate()
    for (namespace, pool), numbers in changes.items():
        pools = dict(editor.get(namespace, {}))
        total = pools.get(pool, NOTHING_USED)
        # The usages of exclusive resources all differ, but mostly count alike.
        for each, times in _counted_alike(numbers).items():
            total = total.plus(each, times) if times else total
        assert total.allocs >= 0, (namespace, pool, total, "what goes was counted before")
        assert total.allocs or total == NOTHING_USED, (namespace, pool, total, "no allocations use nothing")
        pools[pool] = total
        if not total.allocs:
            del pools[pool]
        editor[namespace] = pools
        if not pools:
            del editor[namespace]
    return editor.finish()


def _counted_alike(numbers: Mapping[Usage, int]) -> dict[NamespaceUsage, int]:
    counts: dict[NamespaceUsage, int] = {}
    for usage, times in numbers.items():
        each = counted(usage)
        counts[each] = counts.get(each, 0) + times
    return counts


def summed(allocs: Iterable[Allocation]) -> dict[str, dict[str, NamespaceUsage]]:
    """The usage of allocations by namespace and node pool, computed without the columns."""
    by_namespace: dict[str, dict[str, NamespaceUsage]] = {}
    for alloc in filter(is_using, allocs):
        namespace, pool = namespace_key(alloc)
        pools = by_namespace.setdefault(namespace, {})
        pools[pool] = pools.get(pool, NOTHING_USED).plus(counted(usage_of(alloc)))
    return by_namespace


def _devices(keys: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """The device names, in thousandths, from keys of `device_key`.

    A share counts as its part of the device. One that an older server placed does not tell it, and counts by its
    compute; without compute it counts as a whole device.
    """
    sums: dict[str, int] = {}
    for key in keys:
        share = share_of(key)
        amount = MILLI if share is None else share.part_milli or share.compute * MILLI // 100 or MILLI
        name = "/".join(key.split("/", 3)[:3])
        sums[name] = sums.get(name, 0) + amount
    return tuple(sorted(sums.items()))
