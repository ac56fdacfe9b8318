"""The rules of a quota's specification.

What Yurt could not enforce is refused instead of ignored: a limit that is stored and does not hold misleads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from yurt.rules.validation.job import NAMESPACE, NODE_POOL
from yurt.sdk.value import seconds
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec, amounts_of
from yurt.structs.resources import RequestedDevice

NAME: Final = NAMESPACE
DESCRIPTION_MAX: Final = 256
LIMITS_MAX: Final = 64
POOLS_MAX: Final = 256
DEVICES_MAX: Final = 64
AMOUNT_MAX: Final = 1 << 53
WEIGHT_MIN: Final = 0.001
WEIGHT_MAX: Final = 1000.0
PROTECTION_MAX: Final = seconds(24 * 3600)
"""The longest protection: a longer one would let borrowers keep guaranteed resources of others for days."""
_DEVICE: Final = re.compile(r"[^/\s][^/]{0,127}(/[^/]{1,128}){0,2}\Z")


def quota_problems(spec: QuotaSpec) -> Iterator[str]:
    """All problems of a quota's specification."""
    if not NAME.match(spec.name):
        yield f'invalid name "{spec.name[:64]}": use 1 to 128 letters, digits and "-"'
    if len(spec.description) > DESCRIPTION_MAX:
        yield f"description longer than {DESCRIPTION_MAX}"
    yield from share_problems(spec)
    if not spec.limits:
        yield "no limits: give a limit block with a region"
    if len(spec.limits) > LIMITS_MAX:
        yield f"{len(spec.limits)} limits, at most {LIMITS_MAX} are possible"
        return
    regions = [limit.region for limit in spec.limits]
    for number, limit in enumerate(spec.limits):
        place = f'limit of region "{limit.region[:64]}"'
        if not limit.region:
            yield f"limit {number + 1} names no region"
        elif limit.region in regions[:number]:
            yield f"{place}: the region has another limit; join the two"
        yield from (f"{place}: {problem}" for problem in _limit_problems(limit))


def share_problems(spec: QuotaSpec) -> Iterator[str]:
    """Problems of its place among other quotas that show without the others."""
    if spec.parent and not NAME.match(spec.parent):
        yield f'parent: "{spec.parent[:64]}" is not a name of a quota: use 1 to 128 letters, digits and "-"'
    elif spec.parent and spec.parent == spec.name:
        yield "parent: a quota cannot be its own parent; name another one, or none"
    if spec.weight is not None and not WEIGHT_MIN <= spec.weight <= WEIGHT_MAX:
        yield f"weight: {spec.weight:g} is not between {WEIGHT_MIN:g} and {WEIGHT_MAX:g}; leave it out for 1"
    if spec.protection is not None and not 0 <= spec.protection <= PROTECTION_MAX:
        yield 'protection: it must be between "0s" and "24h"'


def guarantee_problems(limit: QuotaLimit) -> Iterator[str]:
    """Problems of a guarantee, compared with its limit."""
    guaranteed = limit.guaranteed
    if guaranteed is None:
        return
    yield from (f"guaranteed: {text}" for text in _resource_problems(guaranteed))
    storage = guaranteed.storage
    if storage is not None and (storage.variables_mb or storage.host_volumes_mb):
        yield "guaranteed: storage cannot be guaranteed, as it cannot be reclaimed; leave the block out"
    limits = limit.region_limit or QuotaResources()
    yield from _amount_problems(guaranteed, limits, "")
    if len(guaranteed.node_pools) > POOLS_MAX:
        yield f"guaranteed: {len(guaranteed.node_pools)} node pools, at most {POOLS_MAX} are possible"
        return
    of_pool = {pool.node_pool: pool for pool in limits.node_pools}
    names = [pool.node_pool for pool in guaranteed.node_pools]
    for number, pool in enumerate(guaranteed.node_pools):
        place = f'node_pool "{pool.node_pool[:64]}": '
        yield from (f"guaranteed: {place}{text}" for text in _pool_problems(pool, names[:number]))
        yield from _amount_problems(pool, limits, place)
        if pool.node_pool in of_pool:
            yield from _amount_problems(pool, of_pool[pool.node_pool], place, is_signed=False)


def _amount_problems(
    guaranteed: QuotaResources | NodePoolLimit,
    limits: QuotaResources | NodePoolLimit,
    place: str,
    *,
    is_signed: bool = True,
) -> Iterator[str]:
    allowed = amounts_of(limits)
    for name, amount in amounts_of(guaranteed).items():
        if amount < 0:
            if is_signed:
                yield f"guaranteed: {place}{name} = {amount} is negative; leave it out to guarantee nothing"
        elif allowed.get(name) is not None and amount > max(0, allowed[name]):
            yield f"guaranteed: {place}{name} = {amount} is above its limit of {max(0, allowed[name])}; raise the limit"


def _limit_problems(limit: QuotaLimit) -> Iterator[str]:
    if limit.variables_limit is not None and abs(limit.variables_limit) > AMOUNT_MAX:
        yield f"variables_limit must be at most {AMOUNT_MAX}"
    yield from guarantee_problems(limit)
    resources = limit.region_limit
    if resources is None:
        return
    yield from _resource_problems(resources)
    storage = resources.storage
    if storage is not None and max(abs(storage.variables_mb), abs(storage.host_volumes_mb)) > AMOUNT_MAX:
        yield f"storage must be at most {AMOUNT_MAX} MiB"
    if len(resources.node_pools) > POOLS_MAX:
        yield f"{len(resources.node_pools)} node pools, at most {POOLS_MAX} are possible"
        return
    pools = [pool.node_pool for pool in resources.node_pools]
    for number, pool in enumerate(resources.node_pools):
        yield from (f'node_pool "{pool.node_pool[:64]}": {text}' for text in _pool_problems(pool, pools[:number]))


def _pool_problems(pool: NodePoolLimit, before: list[str]) -> Iterator[str]:
    if pool.node_pool == "all":
        yield 'the pool "all" is every pool: set its limits in region_limit itself'
    elif not NODE_POOL.match(pool.node_pool):
        yield "no valid name of a node pool"
    if pool.node_pool in before:
        yield "it has another block; join the two"
    if pool.storage is not None and (pool.storage.variables_mb or pool.storage.host_volumes_mb):
        yield "storage is limited for the region, not by node pool: move it to region_limit"
    yield from _resource_problems(pool)


def _resource_problems(resources: QuotaResources | NodePoolLimit) -> Iterator[str]:
    for name in ("cpu", "cores", "memory_mb", "memory_max_mb", "secrets_mb"):
        amount: int | None = getattr(resources, name)
        if amount is not None and abs(amount) > AMOUNT_MAX:
            yield f"{name.removesuffix('_mb')} must be at most {AMOUNT_MAX}"
    numa = resources.numa
    if numa is not None and (numa.affinity not in ("", "none") or numa.devices):
        yield "numa cannot be limited; leave the block out"
    if len(resources.devices) > DEVICES_MAX:
        yield f"{len(resources.devices)} devices, at most {DEVICES_MAX} are possible"
        return
    names = [device.name for device in resources.devices]
    for number, device in enumerate(resources.devices):
        yield from (f'device "{device.name[:64]}": {text}' for text in _device_problems(device, names[:number]))


def _device_problems(device: RequestedDevice, before: list[str]) -> Iterator[str]:
    if not _DEVICE.match(device.name):
        yield 'write "type", "vendor/type" or "vendor/type/name"'
    if device.name in before:
        yield "it has another block; join the two"
    if not device.count:
        yield "count = 0 could mean none or any number: write -1 to allow none, or leave the block out for no limit"
    elif abs(device.count) > AMOUNT_MAX:
        yield f"count must be at most {AMOUNT_MAX}"
    if device.constraints or device.affinities:
        yield "constraints and affinities do not apply to a limit; limit a model by vendor/type/name"
    if device.all_of_node or device.first_available or device.share or device.memory_mb or device.compute:
        yield "only name and count apply to a limit"
