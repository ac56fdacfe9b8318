"""The published spellings of a `batch_queue` block, and its validation.

Nomad has spelled the block in several ways: the tenants' keys inside and outside `dynamic_priority`, `usage_weight` as
`fairshare_weight`, parameters in groups (`age { weight, max }`), and an object of `Type` and `Config`. All of them are
read. Keys may be those of files (`half_life`) or of the API (`HalfLife`), durations numbers or texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from yurt.rules.problems import near_hint, one_of
from yurt.sdk.errors import Invalid
from yurt.structs.queueing.batch_queue import (
    MINUTE,
    TENANT_METADATA,
    TENANT_NAMESPACE,
    BatchQueue,
    DynamicPriorityQueue,
    FairShareQueue,
)

Json = dict[str, Any]
ParseDuration = Callable[[str], int]
"""Nanoseconds of a text such as "1h30m"; raises ValueError."""

WEIGHT_MAX: Final = 1_000_000
RESERVATIONS_MAX: Final = 64
DEPTH_MAX: Final = 10_000
HALF_LIFE_MAX: Final = 10 * 365 * 24 * 60 * MINUTE
_DURATIONS: Final = {
    "calcinterval": "CalcInterval", "halflife": "HalfLife", "maxage": "MaxAge", "boostafter": "BoostAfter",
    "defaultrunduration": "DefaultRunDuration", "reach": "Reach", "usagedelay": "UsageDelay",
}  # fmt: skip
_OTHERS: Final = {
    "tenanttype": "TenantType", "metadatakey": "MetadataKey", "usageweight": "FairshareWeight",
    "fairshareweight": "FairshareWeight", "ageweight": "AgeWeight", "cpuweight": "CPUWeight", "maxcpu": "MaxCPU",
    "memoryweight": "MemoryWeight", "maxmemory": "MaxMemory", "gpuweight": "GpuWeight", "maxgpu": "MaxGpu",
    "weights": "Weights", "prices": "Prices", "stretch": "Stretch",
}  # fmt: skip
_COMMON: Final = {"reservations": "Reservations", "backfilldepth": "BackfillDepth"}
QUEUE_TYPES: Final = ("fifo", "dynamic_priority", "fair_share")
_TYPES: Final = {"fifo": "Fifo", "dynamicpriority": "DynamicPriority", "fairshare": "FairShare"}
_DAYS: Final = re.compile(r"(\d{1,5})d")
_TENANTS: Final = ("tenanttype", "metadatakey")
_GROUPS: Final = ("usage", "fairshare", "age", "cpu", "memory", "gpu")


def normalised(document: Any, parse_duration: ParseDuration) -> Any:
    """The block in the API's spelling; raises Invalid for unknown keys and invalid durations."""
    block = _one(document)
    if block is None:
        return document
    found: Json = {}
    outer: Json = {}
    kind, config = "", None
    for key, value in block.items():
        name = _folded(key)
        if value is None:
            # API answers contain the blocks of the other queue types as well.
            continue
        if name in _TYPES:
            found[_TYPES[name]] = _parameters(_TYPES[name], value, parse_duration)
        elif name in _COMMON:
            found[_COMMON[name]] = value
        elif name == "defaultrunduration":
            found[_DURATIONS[name]] = _duration(key, value, parse_duration)
        elif name in _TENANTS:
            outer[_OTHERS[name]] = value
        elif name == "type":
            kind = _folded(str(value))
        elif name == "config":
            config = value
        else:
            raise Invalid(
                f'batch_queue: unknown key "{str(key)[:64]}"; {_choices_text((*_TYPES, *_COMMON, *_DURATIONS))}'
            )
    if kind:
        if kind not in _TYPES:
            hint = near_hint(kind, QUEUE_TYPES)
            raise Invalid(f'batch_queue: "{kind[:64]}" is not a type of queue; use {one_of(QUEUE_TYPES)}{hint}')
        found.setdefault(_TYPES[kind], _parameters(_TYPES[kind], config or {}, parse_duration))
    for name in ("DynamicPriority", "FairShare"):
        if isinstance(found.get(name), dict):
            found[name] = {**{key: value for key, value in outer.items() if value}, **found[name]}
    if isinstance(found.get("FairShare"), dict):
        found["FairShare"].pop("TenantType", None)
    return found


def batch_queue_problems(queue: BatchQueue) -> list[str]:
    """All problems of the block."""
    found = [f"batch_queue: {text}" for text in _common_problems(queue)]
    if queue.dynamic_priority is not None:
        found += [f"batch_queue.dynamic_priority: {text}" for text in _dynamic_problems(queue.dynamic_priority)]
    if queue.fair_share is not None:
        found += [f"batch_queue.fair_share: {text}" for text in _fair_problems(queue.fair_share)]
    return found


def _common_problems(queue: BatchQueue) -> Iterator[str]:
    types = [one for one in (queue.fifo, queue.dynamic_priority, queue.fair_share) if one is not None]
    if len(types) != 1:
        yield f"it has {len(types)} types, but needs exactly one: fifo, dynamic_priority or fair_share"
    yield from _outside("reservations", queue.reservations, 0, RESERVATIONS_MAX)
    yield from _outside("backfill_depth", queue.backfill_depth, 0, DEPTH_MAX)
    if queue.default_run_duration < 0:
        yield "default_run_duration is negative"


def _dynamic_problems(queue: DynamicPriorityQueue) -> Iterator[str]:
    if queue.tenant_type not in (TENANT_NAMESPACE, TENANT_METADATA):
        yield f'tenant_type "{queue.tenant_type[:64]}" is neither "namespace" nor "metadata"'
    if queue.tenant_type == TENANT_METADATA and not queue.metadata_key:
        yield "metadata_key is needed when tenant_type is metadata"
    for name in ("fairshare", "age", "cpu", "memory", "gpu"):
        weight = getattr(queue, f"{name}_weight")
        yield from _outside(f"{name}_weight", weight, 0, WEIGHT_MAX)
        if name != "fairshare" and weight and getattr(queue, f"max_{name}") <= 0:
            yield f"max_{name} is needed when {name}_weight is set"
    for name in ("max_age", "max_cpu", "max_memory", "max_gpu", "calc_interval", "half_life"):
        if getattr(queue, name) < 0:
            yield f"{name} is negative"


def _fair_problems(queue: FairShareQueue) -> Iterator[str]:
    if not MINUTE <= queue.half_life <= HALF_LIFE_MAX:
        yield 'half_life is shorter than "1m" or longer than 10 years; for "no memory" use dynamic_priority'
    for name in ("boost_after", "reach", "usage_delay"):
        if not 0 <= getattr(queue, name) <= HALF_LIFE_MAX:
            yield f"{name} is negative or longer than 10 years"
    if not 0 <= queue.stretch <= 1000:
        yield f"stretch is {queue.stretch:g}, but must be between 0 and 1000"
    for kind, amounts in (("weights", queue.weights), ("prices", queue.prices)):
        for name, amount in amounts.items():
            if not 0.001 <= amount <= 1000:
                yield f'{kind} "{name[:64]}" is {amount:g}, but must be between 0.001 and 1000'


def _parameters(kind: str, value: Any, parse_duration: ParseDuration) -> Json:
    block = _one(value)
    if block is None:
        raise Invalid(f"batch_queue: {kind} must be a block")
    found: Json = {}
    for key, inner in _flat(block):
        name = _folded(key)
        if inner is None:
            continue
        if name in _DURATIONS:
            found[_DURATIONS[name]] = _duration(key, inner, parse_duration)
        elif name in ("weights", "prices"):
            found[_OTHERS[name]] = dict(_one(inner) or {})
        elif name in _OTHERS:
            found[_OTHERS[name]] = inner
        else:
            raise Invalid(
                f'batch_queue: unknown key "{str(key)[:64]}" in {kind}; {_choices_text((*_OTHERS, *_DURATIONS))}'
            )
    return found


def _flat(block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parameters with their groups flattened: `age { weight = 1  max = "1h" }` becomes `age_weight` and
    `max_age`."""
    for key, value in block.items():
        group = _one(value) if _folded(key) in _GROUPS else None
        if group is None:
            yield key, value
            continue
        for inner, amount in group.items():
            yield (f"max_{key}" if _folded(inner).startswith("max") else f"{key}_{inner}"), amount


def _duration(key: str, value: Any, parse_duration: ParseDuration) -> Any:
    if not isinstance(value, str):
        return value
    days = _DAYS.fullmatch(value)
    if days is not None:
        return int(days[1]) * 24 * 60 * MINUTE
    try:
        return parse_duration(value)
    except ValueError as error:
        raise Invalid(f"batch_queue: {key}: {error}") from None


def _outside(name: str, value: int, least: int, most: int) -> Iterator[str]:
    if not least <= value <= most:
        yield f"{name} is {value}, but must be between {least} and {most}"


def _one(value: Any) -> Mapping[str, Any] | None:
    """A block given as an object or as a list of one object."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, Mapping) else None


def _folded(key: str) -> str:
    return str(key).replace("_", "").lower()


def _choices_text(names: tuple[str, ...]) -> str:
    return f"there are: {', '.join(sorted(set(names)))}"
