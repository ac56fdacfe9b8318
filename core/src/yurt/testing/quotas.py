"""Quotas for tests: one of 1,000 MB of memory, and commands that bind namespaces to it."""

from __future__ import annotations

from typing import Any

from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AnyCommand, UpsertNamespaces, UpsertQuotas
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec, QuotaStorageResources, with_hashes

REGION = "global"
QUOTAS = QuotaLimits(REGION)
"""The limits that a server of the region has."""


def quota(
    name: str = "small", *, region: str = REGION, pools: tuple[NodePoolLimit, ...] = (), **limits: Any
) -> QuotaSpec:
    """A quota with these limits in a region; without any, 1,000 MB of memory."""
    storage = {key: limits.pop(key) for key in ("variables_mb", "host_volumes_mb") if key in limits}
    if storage:
        limits["storage"] = QuotaStorageResources(**storage)
    resources = QuotaResources(**(limits or {"memory_mb": 1000}), node_pools=pools)
    return with_hashes(QuotaSpec(name=name, limits=(QuotaLimit(region=region, region_limit=resources),)))


def bound(*namespaces: str, spec: QuotaSpec | None = None) -> tuple[AnyCommand, ...]:
    """The commands that create a quota and give it to namespaces, which are created too."""
    spec = quota() if spec is None else spec
    rows = tuple(Namespace(name=name, quota=spec.name) for name in namespaces or ("default",))
    return UpsertQuotas(quotas=(spec,)), UpsertNamespaces(namespaces=rows)
