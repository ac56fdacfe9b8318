"""Factories for quotas, and for the commands that assign namespaces to them."""

from __future__ import annotations

from typing import Any

from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.sdk.value import replace
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AnyCommand, UpsertNamespaces, UpsertQuotas
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec, QuotaStorageResources, with_hashes

REGION = "global"
QUOTAS = QuotaLimits(REGION)
"""The limits that a server of the region has."""


def quota(
    name: str = "small",
    *,
    region: str = REGION,
    pools: tuple[NodePoolLimit, ...] = (),
    parent: str = "",
    **limits: Any,
) -> QuotaSpec:
    """A quota with these limits in a region; by default 1,000 MB of memory."""
    storage = {key: limits.pop(key) for key in ("variables_mb", "host_volumes_mb") if key in limits}
    if storage:
        limits["storage"] = QuotaStorageResources(**storage)
    resources = QuotaResources(**(limits or {"memory_mb": 1000}), node_pools=pools)
    limit = QuotaLimit(region=region, region_limit=resources)
    return with_hashes(QuotaSpec(name=name, parent=parent, limits=(limit,)))


def guaranteed(spec: QuotaSpec, *, pool: str = "", **amounts: Any) -> QuotaSpec:
    """The quota with these amounts guaranteed, in all node pools or in one."""
    resources = QuotaResources(node_pools=(NodePoolLimit(node_pool=pool, **amounts),)) if pool else None
    limits = (replace(limit, guaranteed=resources or QuotaResources(**amounts)) for limit in spec.limits)
    return with_hashes(replace(spec, limits=tuple(limits)))


def bound(*namespaces: str, spec: QuotaSpec | None = None) -> tuple[AnyCommand, ...]:
    """The commands that create a quota and create namespaces under it."""
    spec = quota() if spec is None else spec
    rows = tuple(Namespace(name=name, quota=spec.name) for name in namespaces or ("default",))
    return UpsertQuotas(quotas=(spec,)), UpsertNamespaces(namespaces=rows)
