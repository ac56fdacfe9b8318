"""Quotas as limits of the scheduler and the plan applier.

The limit of the own region holds for all namespaces together that name the quota or one below it, and each of its node
pool limits for their jobs in that pool; a job of the pool "all" counts in every pool. The usage comes from the
columnar view, which sums it up as allocations come and go: making the limits of a job looks at no allocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from yurt.scheduler.capacity.limits import Limit, LimitChange
from yurt.state.namespace_usage import MILLI, NOTHING_USED, NamespaceUsage
from yurt.state.quota_totals import chain_of, counts_in, devices_used, members_of, used_by
from yurt.state.store import Snapshot
from yurt.structs.job import Job
from yurt.structs.quota import NodePoolLimit, QuotaResources, QuotaSpec

UNITS: Final = {
    "cpu": "MHz", "cores": "cores", "memory": "MB", "memory_max": "MB", "secrets": "MB",
}  # fmt: skip
"""The units of a quota's dimensions, devices excluded."""
FIELDS: Final = {"memory": "memory_mb", "memory_max": "memory_max_mb", "secrets": "secrets_mb"}


class Dimension(NamedTuple):
    """One dimension of a quota: the allowed and used amount, and the requested or changed one. Devices are in
    thousandths."""

    name: str
    unit: str
    allowed: int
    used: int = 0


class QuotaPart(NamedTuple):
    """The limits of a quota on all node pools (`pool` is empty) or on one."""

    pool: str
    allowed: tuple[tuple[str, int], ...]
    """Amounts by dimension; -1 means that nothing is allowed, and dimensions without a limit are missing."""
    devices: tuple[tuple[str, int], ...]

    def dimensions(self, used: NamespaceUsage) -> Iterable[Dimension]:
        """The allowed and used amounts, by dimension."""
        for name, allowed in self.allowed:
            yield Dimension(name, UNITS[name], max(0, allowed), getattr(used, name))
        for name, allowed in self.devices:
            yield Dimension(f"device {name}", "", max(0, allowed) * MILLI, devices_used(used, name))


def parts_of(spec: QuotaSpec, region: str) -> tuple[QuotaPart, ...]:
    """The limits of a quota in a region; none if it has no limit for the region."""
    limit = spec.limit_of(region)
    if limit is None or limit.region_limit is None:
        return ()
    return (_part("", limit.region_limit), *(_part(pool.node_pool, pool) for pool in limit.region_limit.node_pools))


def _part(pool: str, resources: QuotaResources | NodePoolLimit) -> QuotaPart:
    allowed = ((name, getattr(resources, FIELDS.get(name, name)) or 0) for name in UNITS)
    return QuotaPart(
        pool,
        tuple((name, amount) for name, amount in allowed if amount),
        tuple((device.name, device.count) for device in resources.devices if device.count),
    )


def _limits(part: QuotaPart) -> bool:
    return bool(part.allowed or part.devices)


class RegionQuota:
    """A quota in a region while a plan is made or checked."""

    def __init__(self, snapshot: Snapshot, spec: QuotaSpec, parts: Sequence[QuotaPart]) -> None:
        self.name = spec.name
        self._namespaces = frozenset(members_of(snapshot, spec.name))
        self._parts = tuple(parts)
        self._used = [used_by(snapshot, self._namespaces, part.pool) for part in self._parts]

    def exceeded_dimensions(self, changes: Iterable[LimitChange]) -> Sequence[str]:
        """The excess of the changes together, in every dimension that they enlarge."""
        counted_changes = tuple(self._own(changes))
        dimensions: list[str] = []
        for part, used in zip(self._parts, self._used, strict=True):
            total = _sum([change for change in counted_changes if counts_in(part.pool, change.key[1])])
            required = {dimension.name: dimension.used for dimension in part.dimensions(total)}
            place = f'node pool "{part.pool}": ' if part.pool else ""
            dimensions += [
                place + exhausted_text(dimension, required[dimension.name])
                for dimension in part.dimensions(used)
                if 0 < required[dimension.name] > dimension.allowed - dimension.used
            ]
        return dimensions

    def fitting(self, change: LimitChange, most: int) -> int:
        """The number of times that the change fits, up to `most`."""
        for part, used in zip(self._parts, self._used, strict=True):
            if change.key[0] not in self._namespaces or not counts_in(part.pool, change.key[1]):
                continue
            required = {dimension.name: dimension.used for dimension in part.dimensions(change.amounts)}
            for dimension in part.dimensions(used):
                if required[dimension.name] > 0:
                    free = max(0, dimension.allowed - dimension.used)
                    most = min(most, free // required[dimension.name])
        return most

    def count(self, change: LimitChange) -> None:
        """Count a change if it concerns one of the quota's namespaces."""
        for own in self._own((change,)):
            for number, part in enumerate(self._parts):
                if counts_in(part.pool, own.key[1]):
                    self._used[number] = self._used[number].plus(own.amounts, own.times)

    def _own(self, changes: Iterable[LimitChange]) -> Iterable[LimitChange]:
        return (change for change in changes if change.key[0] in self._namespaces)


def _sum(changes: Sequence[LimitChange]) -> NamespaceUsage:
    """The sum of changes; one placement, the common case, needs no sum."""
    if len(changes) == 1 and changes[0].times == 1:
        return changes[0].amounts
    total = NOTHING_USED
    for change in changes:
        total = total.plus(change.amounts, change.times)
    return total


class QuotaLimits:
    """Computes a job's limits: the quota of its namespace in the region of this server."""

    def __init__(self, region: str) -> None:
        self.region = region

    def __call__(self, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
        """The quota of the job's namespace and those above it; none if the namespace has no quota.

        Quotas without a limit here are left out.
        """
        namespace = snapshot.namespaces.get(job.namespace)
        if namespace is None or not namespace.quota:
            return ()
        parts_by_quota = ((spec, parts_of(spec, self.region)) for spec in chain_of(snapshot, namespace.quota))
        return tuple(RegionQuota(snapshot, spec, parts) for spec, parts in parts_by_quota if any(map(_limits, parts)))


def exhausted_text(dimension: Dimension, required: int) -> str:
    """The text `memory exhausted (512 MB needed, 300 of 1000 MB left)`."""
    scale = scale_of(dimension)
    unit = f" {dimension.unit}" if dimension.unit else ""
    needed = f"{dimension.name} exhausted ({amount_text(required, scale)}{unit} needed, "
    if not dimension.allowed:
        return needed + "none allowed)"
    free = amount_text(max(0, dimension.allowed - dimension.used), scale)
    return f"{needed}{free} of {amount_text(dimension.allowed, scale)}{unit} left)"


def scale_of(dimension: Dimension) -> int:
    """The number of the dimension's units in one displayed unit."""
    return MILLI if dimension.name.startswith("device ") else 1


def amount_text(amount: int, scale: int = 1) -> str:
    """An amount with only the necessary digits: 1500 thousandths are 1.5."""
    return str(amount) if scale == 1 else f"{amount / scale:g}"
