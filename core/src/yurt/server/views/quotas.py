"""The usage of quotas."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from yurt.access import Access, Scope, needs
from yurt.state.quota_totals import (
    devices_used,
    host_volumes_bytes,
    members_of,
    mib_of,
    used_by,
    variables_bytes,
    whole,
)
from yurt.state.store import Snapshot
from yurt.state.watch import WatchKey
from yurt.structs.quota import (
    NodePoolLimit,
    QuotaLimit,
    QuotaResources,
    QuotaSpec,
    QuotaStorageResources,
    QuotaUsage,
    amounts_of,
)
from yurt.structs.resources import RequestedDevice

_SOURCES: Final = ("quotas", "namespaces", "allocs", "variables", "host_volumes")
"""The tables from which usage follows."""


class _Amounts(NamedTuple):
    """What allocations use; of devices those that the quota limits, rounded up to whole ones."""

    cpu: int
    cores: int
    memory_mb: int
    memory_max_mb: int
    secrets_mb: int
    devices: tuple[RequestedDevice, ...]


class QuotaUsages:
    """The usage of each quota in this region, computed from allocations, variables and host volumes."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access.narrowed(needs.ANY_CAPABILITY)

    @staticmethod
    def watched() -> tuple[WatchKey, ...]:
        """The watch keys of a blocking query."""
        return tuple((name,) for name in _SOURCES)

    @property
    def index(self) -> int:
        """The index of the last change to a table that usage depends on; 0 while there never was a quota."""
        return self._state.quotas.index and max(self._state.table(name).index for name in _SOURCES)

    def preparation(self) -> Callable[[], object]:
        """The function that sums up the allocations; run it in a thread before `named`."""
        return self._state.columns_maker()

    def named(self, names: Sequence[str], *, region: str) -> list[QuotaUsage]:
        """The usage of these quotas; needs the result of `preparation`."""
        specs = (self._state.quotas.get(name) for name in names)
        return [self._usage(spec, region) for spec in specs if spec is not None]

    def names(self, prefix: str = "") -> list[str]:
        """The names of all quotas that begin with `prefix`, sorted."""
        return sorted(name for name in self._state.quotas.keys() if name.startswith(prefix))  # noqa: SIM118 - a Table

    def dimensions(self, region: str) -> Iterator[tuple[str, str, float, float | None]]:
        """(quota, dimension, used, allowed) of the whole region, for metrics; None for no limit.

        Asks nothing of the access, so that any thread may read it.
        """
        for name in self.names():
            limit = self._state.quotas[name].limit_of(region)
            if limit is not None:
                used = self._used(limit, members_of(self._state, name))
                yield from ((name, *each) for each in _dimensions(used, limit))

    def guarantees(self, region: str) -> Iterator[tuple[str, str, float, float]]:
        """(quota, dimension, guaranteed, used) of the whole region, for metrics."""
        for name in self.names():
            limit = self._state.quotas[name].limit_of(region)
            if limit is None or limit.guaranteed is None:
                continue
            used = amounts_of(self._guaranteed(limit.guaranteed, members_of(self._state, name)))
            for dimension, amount in amounts_of(limit.guaranteed).items():
                yield name, dimension.replace('"', ""), float(amount), float(used.get(dimension, 0))

    def _usage(self, spec: QuotaSpec, region: str) -> QuotaUsage:
        members = members_of(self._state, spec.name)
        limit = spec.limit_of(region)
        used = {} if limit is None else {base64.b64encode(limit.hash).decode(): self._used(limit, members)}
        return QuotaUsage(
            name=spec.name,
            used=used,
            create_index=spec.create_index,
            modify_index=self.index,
            namespaces=tuple(name for name in members if self._access.allows(Scope(namespace=name))),
        )

    def _used(self, limit: QuotaLimit, members: Sequence[str]) -> QuotaLimit:
        state, limits = self._state, limit.region_limit or QuotaResources()
        storage = QuotaStorageResources(
            variables_mb=mib_of(variables_bytes(state, members)),
            host_volumes_mb=mib_of(host_volumes_bytes(state, members)),
        )
        pools = tuple(
            NodePoolLimit(node_pool=pool.node_pool, **self._amounts(members, pool.devices, pool.node_pool)._asdict())
            for pool in limits.node_pools
        )
        amounts = self._amounts(members, limits.devices)
        resources = QuotaResources(**amounts._asdict(), storage=storage, node_pools=pools)
        return QuotaLimit(
            region=limit.region,
            region_limit=resources,
            variables_limit=None if limit.variables_limit is None else storage.variables_mb,
            hash=limit.hash,
            guaranteed=None if limit.guaranteed is None else self._guaranteed(limit.guaranteed, members),
        )

    def _guaranteed(self, guarantee: QuotaResources, members: Sequence[str]) -> QuotaResources:
        """The usage of the guaranteed amounts."""
        pools = tuple(
            NodePoolLimit(node_pool=pool.node_pool, **self._amounts(members, pool.devices, pool.node_pool)._asdict())
            for pool in guarantee.node_pools
        )
        return QuotaResources(**self._amounts(members, guarantee.devices)._asdict(), node_pools=pools)

    def _amounts(self, members: Sequence[str], devices: Sequence[RequestedDevice], pool: str = "") -> _Amounts:
        used = used_by(self._state, members, pool)
        return _Amounts(
            cpu=used.cpu,
            cores=used.cores,
            memory_mb=used.memory,
            memory_max_mb=used.memory_max,
            secrets_mb=used.secrets,
            devices=tuple(
                RequestedDevice(name=device.name, count=whole(devices_used(used, device.name))) for device in devices
            ),
        )


def _dimensions(used: QuotaLimit, limit: QuotaLimit) -> Iterator[tuple[str, float, float | None]]:
    amounts, limits = used.region_limit or QuotaResources(), limit.region_limit or QuotaResources()
    for name in ("cpu", "cores", "memory_mb", "memory_max_mb", "secrets_mb"):
        yield name.removesuffix("_mb"), float(getattr(amounts, name) or 0), _allowed(getattr(limits, name))
    for device, device_limit in zip(amounts.devices, limits.devices, strict=True):
        yield f"device {device.name}", float(device.count), _allowed(device_limit.count)
    storage = amounts.storage or QuotaStorageResources()
    yield "variables", float(storage.variables_mb), _allowed(limit.variables_mb)
    yield "host_volumes", float(storage.host_volumes_mb), _allowed(limit.host_volumes_mb)


def _allowed(amount: int | None) -> float | None:
    """None for no limit; a negative amount allows nothing."""
    return float(max(0, amount)) if amount else None
