"""Devices: which kinds a request matches on a node, which free instances it gets, and how well they suit its
affinities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import NamedTuple

from yurt.scheduler.operators import holds
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.node import Attribute, Node, NodeDeviceResource
from yurt.structs.resources import RequestedDevice

_UNITS = {
    "": 1.0, "k": 1e3, "kb": 1e3, "kib": 2.0**10, "m": 1e6, "mb": 1e6, "mib": 2.0**20, "g": 1e9, "gb": 1e9, "gib":
    2.0**30, "t": 1e12, "tb": 1e12, "tib": 2.0**40, "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "mw": 1e-3,
    "w": 1.0, "kw": 1e3, "kb/s": 1e3, "kib/s": 2.0**10, "mb/s": 1e6, "mib/s": 2.0**20, "gb/s": 1e9, "gib/s":
    2.0**30,
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z/]*)")


class DeviceGrant(NamedTuple):
    """Instances for one task."""

    task: str
    device: AllocatedDeviceResource


def has_devices(node: Node, requests: Iterable[RequestedDevice]) -> bool:
    """Whether the node has the kinds and numbers asked for, in use or not."""
    return all(any(len(kind.instances) >= request.count for kind in _kinds(node, request)) for request in requests)


def free_devices(node: Node, taken: frozenset[str], request: RequestedDevice) -> int:
    """The most free instances that one kind matching the request has."""
    return max((len(_free(kind, taken)) for kind in _kinds(node, request)), default=0)


def grant_devices(
    node: Node, taken: frozenset[str], requests: Iterable[tuple[str, RequestedDevice]]
) -> tuple[tuple[DeviceGrant, ...], float] | None:
    """Free instances for every (task, request) and the affinity score, or None when some request finds none."""
    held, grants = set(taken), []
    matched = total = 0.0
    for task, request in requests:
        offers = []
        for order, kind in enumerate(_kinds(node, request)):
            free = _free(kind, held)
            if len(free) >= request.count:
                offers.append((-matched_weight(kind, request), order, kind, free))
        if not offers:
            return None
        weight, _, kind, free = min(offers, key=lambda offer: offer[:2])
        ids = tuple(free[: max(0, request.count)])
        held.update(_key(kind, instance) for instance in ids)
        grants.append(
            DeviceGrant(
                task, AllocatedDeviceResource(vendor=kind.vendor, type=kind.type, name=kind.name, device_ids=ids)
            )
        )
        matched -= weight
        total += sum(abs(affinity.weight) for affinity in request.affinities)
    return tuple(grants), (matched / total if total else 0.0)


def matched_weight(kind: NodeDeviceResource, request: RequestedDevice) -> float:
    """The sum of the weights of the affinities that a kind of device meets."""
    return float(sum(a.weight for a in request.affinities if _holds(a.operand, kind, a.l_target, a.r_target)))


def _free(kind: NodeDeviceResource, taken: Set[str]) -> list[str]:
    return [i.id for i in kind.instances if i.healthy and _key(kind, i.id) not in taken]


def _kinds(node: Node, request: RequestedDevice) -> list[NodeDeviceResource]:
    return [
        kind
        for kind in node.node_resources.devices
        if _is_named(kind, request.name)
        and all(_holds(c.operand, kind, c.l_target, c.r_target) for c in request.constraints)
    ]


def _is_named(kind: NodeDeviceResource, name: str) -> bool:
    parts = name.split("/", 2)
    if len(parts) == 1:
        return kind.type == parts[0]
    if len(parts) == 2:
        return [kind.vendor, kind.type] == parts
    return [kind.vendor, kind.type, kind.name] == parts


def _key(kind: NodeDeviceResource, instance: str) -> str:
    return f"{kind.vendor}/{kind.type}/{kind.name}/{instance}"


def _holds(operand: str, kind: NodeDeviceResource, left: str, right: str) -> bool:
    one, other = _resolve(left, kind), _resolve(right, kind)
    if one is not None and other is not None:
        first, second = _quantity(one), _quantity(other)
        if first is not None and second is not None and operand in ("=", "==", "is", "!=", "not", "<", "<=", ">", ">="):
            one, other = repr(first), repr(second)
    return holds(operand, one, other)


def _resolve(target: str, kind: NodeDeviceResource) -> str | None:
    if not target.startswith("${"):
        return target
    name = target[2:-1]
    if name.startswith("device.attr."):
        attribute = kind.attributes.get(name[12:])
        return None if attribute is None else _text(attribute)
    return {
        "device.vendor": kind.vendor,
        "device.type": kind.type,
        "device.model": kind.name,
        "device.ids": ",".join(instance.id for instance in kind.instances),
    }.get(name)


def _text(attribute: Attribute) -> str | None:
    if attribute.bool_val is not None:
        return "true" if attribute.bool_val else "false"
    value = next((v for v in (attribute.string_val, attribute.int_val, attribute.float_val) if v is not None), None)
    return None if value is None else f"{value} {attribute.unit}".strip()


def _quantity(text: str) -> float | None:
    match = _QUANTITY.fullmatch(text.strip())
    scale = _UNITS.get(match[2].lower()) if match is not None else None
    return None if match is None or scale is None else float(match[1]) * scale
