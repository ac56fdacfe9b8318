"""Quotas: hard limits on the combined allocations, variables and host volumes of namespaces.

A namespace names at most one quota (`Namespace.quota`); several may share one. Of a quota's limits only the one of the
own region counts. In each dimension None and 0 mean "no limit", and a negative number means "nothing".

Quotas form trees by `parent`: usage under a quota counts under those above it too. Each may *guarantee* amounts; unused
guaranteed capacity is lent to others, and reclaimed from them (docs/howto/give-a-team-a-quota.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from yurt.sdk.value import OWN, Duration, Value, no_entries, replace, seconds
from yurt.structs.resources import NUMAResource, RequestedDevice


class QuotaStorageResources(Value):
    """Limits on stored data, MiB."""

    variables_mb: int = 0
    """The size of variables as stored, encrypted."""
    host_volumes_mb: int = 0
    """The capacity of dynamic host volumes."""


class NodePoolLimit(Value):
    """Limits on the jobs of one node pool; fields as in `QuotaResources`."""

    node_pool: str = ""
    cpu: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    memory_max_mb: int | None = None
    devices: tuple[RequestedDevice, ...] = ()
    numa: NUMAResource | None = None
    secrets_mb: int | None = None
    storage: QuotaStorageResources | None = None


class QuotaResources(Value):
    """Amounts: limits of a region, or usage. CPU in MHz, memory in MiB."""

    cpu: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    memory_max_mb: int | None = None
    devices: tuple[RequestedDevice, ...] = ()
    numa: NUMAResource | None = None
    secrets_mb: int | None = None
    storage: QuotaStorageResources | None = None
    node_pools: tuple[NodePoolLimit, ...] = ()


class QuotaLimit(Value):
    """The limits of one region; `hash` identifies them in a `QuotaUsage`."""

    region: str = ""
    region_limit: QuotaResources | None = None
    variables_limit: int | None = None
    """MiB; the older spelling of `region_limit.storage.variables_mb`, which takes precedence over it."""
    hash: bytes = b""
    guaranteed: Annotated[QuotaResources | None, OWN] = None
    """Guaranteed amounts, which others only borrow; None, and a dimension without an amount, guarantee nothing."""

    @property
    def variables_mb(self) -> int:
        """The limit on variables, from either spelling."""
        storage = self.region_limit.storage if self.region_limit is not None else None
        return (storage.variables_mb if storage is not None else 0) or self.variables_limit or 0

    @property
    def host_volumes_mb(self) -> int:
        """The limit on the capacity of host volumes."""
        storage = self.region_limit.storage if self.region_limit is not None else None
        return storage.host_volumes_mb if storage is not None else 0


class QuotaSpec(Value):
    """A quota as its operator wrote it."""

    name: str = ""
    description: str = ""
    limits: tuple[QuotaLimit, ...] = ()
    create_index: int = 0
    modify_index: int = 0
    parent: Annotated[str, OWN] = ""
    """The name of the quota above it; "" for none."""
    weight: Annotated[float | None, OWN] = None
    """Its weight, among quotas of the same parent, in sharing capacity without a guarantee; None is 1."""
    protection: Annotated[Duration | None, OWN] = None
    """The minimum run time of borrowing allocations of its namespaces before they are reclaimed; None is
    `PROTECTION`."""

    def limit_of(self, region: str) -> QuotaLimit | None:
        """The limit of a region, or None."""
        return next((limit for limit in self.limits if limit.region == region), None)


class QuotaUsage(Value):
    """The usage of a quota: amounts by the base64 hash of a limit."""

    name: str = ""
    used: Mapping[str, QuotaLimit] = no_entries()
    create_index: int = 0
    modify_index: int = 0
    namespaces: Annotated[tuple[str, ...], OWN] = ()
    """The namespaces that name the quota, as far as the reader may see them."""


HASH_BYTES: Final = 32
PROTECTION: Final = seconds(10 * 60)
"""The protection of borrowers whose quota sets none, and of those without a quota."""
_encoder: Final = msgspec.json.Encoder(order="deterministic")


def with_hash(limit: QuotaLimit) -> QuotaLimit:
    """The limit with its hash, computed from its content."""
    content = _encoder.encode(replace(limit, hash=b""))
    return replace(limit, hash=hashlib.blake2b(content, digest_size=HASH_BYTES).digest())


def with_hashes(spec: QuotaSpec) -> QuotaSpec:
    """The quota with the hash of each limit."""
    return replace(spec, limits=tuple(map(with_hash, spec.limits)))


AMOUNT_FIELDS: Final = {
    "cpu": "cpu", "cores": "cores", "memory": "memory_mb", "memory_max": "memory_max_mb", "secrets": "secrets_mb",
}  # fmt: skip
"""The fields of amounts, with their names in quota files."""


def amounts_of(resources: QuotaResources | NodePoolLimit) -> dict[str, int]:
    """The set amounts by their names in quota files: `cpu`, `memory`, `device "nvidia/gpu"` (whole devices)."""
    found = {name: getattr(resources, field) for name, field in AMOUNT_FIELDS.items() if getattr(resources, field)}
    return found | {f'device "{device.name}"': device.count for device in resources.devices if device.count}
