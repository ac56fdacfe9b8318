"""The rules of a quota's specification.

What Yurt could not enforce is refused instead of ignored: a limit that is stored and does not hold misleads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from yurt.rules.validation.job import NAMESPACE, NODE_POOL
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec
from yurt.structs.resources import RequestedDevice

NAME: Final = NAMESPACE
DESCRIPTION_MAX: Final = 256
LIMITS_MAX: Final = 64
POOLS_MAX: Final = 256
DEVICES_MAX: Final = 64
AMOUNT_MAX: Final = 1 << 53
_DEVICE: Final = re.compile(r"[^/\s][^/]{0,127}(/[^/]{1,128}){0,2}\Z")


def quota_problems(spec: QuotaSpec) -> Iterator[str]:
    """All that is wrong with a quota."""
    if not NAME.match(spec.name):
        yield f'invalid name "{spec.name[:64]}": use 1 to 128 letters, digits and "-"'
    if len(spec.description) > DESCRIPTION_MAX:
        yield f"description longer than {DESCRIPTION_MAX}"
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


def _limit_problems(limit: QuotaLimit) -> Iterator[str]:
    if limit.variables_limit is not None and abs(limit.variables_limit) > AMOUNT_MAX:
        yield f"variables_limit must be at most {AMOUNT_MAX}"
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
