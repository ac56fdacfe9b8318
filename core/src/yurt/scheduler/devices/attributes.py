"""Device attributes with units, and whether an instance meets a constraint.

An instance has the attributes of its group and its own, which win. Quantities are compared in one unit: bytes, hertz,
watts, bytes a second. Those of different kinds, or with a unit and without one, are neither equal nor in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from yurt.scheduler.constraints.operators import holds
from yurt.structs.constraint import Constraint
from yurt.structs.node import Attribute, NodeDevice, NodeDeviceResource

_BINARY = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40, "p": 2.0**50, "e": 2.0**60}
_DECIMAL = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_SIZES = {
    "b": 1.0,
    **_DECIMAL,
    **{f"{prefix}b": scale for prefix, scale in _DECIMAL.items()},
    **{f"{prefix}ib": scale for prefix, scale in _BINARY.items()},
}
_UNITS: dict[str, tuple[str, float]] = {
    "": ("", 1.0),
    **{unit: ("B", scale) for unit, scale in _SIZES.items()},
    **{f"{unit}/s": ("B/s", scale) for unit, scale in _SIZES.items() if unit.endswith("b")},
    **{f"{prefix}hz": ("Hz", _DECIMAL.get(prefix, 1.0)) for prefix in ("", "k", "m", "g")},
    **{f"{prefix}w": ("W", _DECIMAL.get(prefix, 1.0)) for prefix in ("", "k", "g")},
    "mw": ("W", 1e-3),
    "MW": ("W", 1e6),
}
"""The dimension of each unit and its factor to the base unit; case is ignored, except that mW is not MW."""
_QUANTITY = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z/]*)")
_COMPARED = frozenset({"=", "==", "is", "!=", "not", "<", "<=", ">", ">="})
_LISTING = frozenset({"=", "==", "is", "set_contains", "set_contains_all", "set_contains_any"})
IDS = "${device.ids}"
INSTANCE_ATTRIBUTES = frozenset(
    {
        "numa_node", "cpu_affinity", "nvlink_peers", "nvlink_links", "topology", "index", "minor", "serial",
        "mig_parent",
    }
)  # fmt: skip
"""Attributes in which the instances of a group differ; constraints on them are checked on every node."""


def attribute_of(kind: NodeDeviceResource, instance: NodeDevice | None, name: str) -> Attribute | None:
    """An attribute of an instance, or of its group."""
    own = instance.attributes.get(name) if instance is not None else None
    return kind.attributes.get(name) if own is None else own


def text_of(kind: NodeDeviceResource, instance: NodeDevice | None, name: str) -> str | None:
    """An attribute as text with its unit."""
    attribute = attribute_of(kind, instance, name)
    return None if attribute is None else _text(attribute)


def number_of(kind: NodeDeviceResource, instance: NodeDevice | None, name: str) -> float | None:
    """An attribute as a number in its base unit: bytes for sizes."""
    text = text_of(kind, instance, name)
    quantity = None if text is None else _quantity(text)
    return None if quantity is None else quantity[1]


def meets(operand: str, kind: NodeDeviceResource, left: str, right: str, instance: NodeDevice | None = None) -> bool:
    """Whether an instance, or its group if none is given, meets a condition."""
    one, other = _resolve(left, kind, instance), _resolve(right, kind, instance)
    if one is not None and other is not None and operand in _COMPARED:
        first, second = _quantity(one), _quantity(other)
        if first is not None and second is not None:
            if first[0] != second[0]:
                return operand in ("!=", "not")
            one, other = repr(first[1]), repr(second[1])
    return holds(operand, one, other)


def admits(kind: NodeDeviceResource, instance: NodeDevice, constraints: Iterable[Constraint]) -> bool:
    """Whether these constraints permit an instance; constraints on ids select instances directly."""
    for constraint in constraints:
        if not meets(constraint.operand, kind, constraint.l_target, constraint.r_target, instance):
            return False
        if constraint.l_target == IDS and constraint.operand in _LISTING and instance.id not in _listed(constraint):
            return False
    return True


def _listed(constraint: Constraint) -> set[str]:
    return {part.strip() for part in constraint.r_target.split(",")}


def _resolve(target: str, kind: NodeDeviceResource, instance: NodeDevice | None) -> str | None:
    if not target.startswith("${"):
        return target
    name = target[2:-1]
    if name.startswith("device.attr."):
        return text_of(kind, instance, name[12:])
    return {
        "device.vendor": kind.vendor,
        "device.type": kind.type,
        "device.model": kind.name,
        "device.ids": ",".join(each.id for each in kind.instances),
        "device.id": None if instance is None else instance.id,
    }.get(name)


def _text(attribute: Attribute) -> str | None:
    if attribute.bool_val is not None:
        return "true" if attribute.bool_val else "false"
    value = next((v for v in (attribute.string_val, attribute.int_val, attribute.float_val) if v is not None), None)
    return None if value is None else f"{value} {attribute.unit}".strip()


def _quantity(text: str) -> tuple[str, float] | None:
    """Dimension and amount: ("B", 1024.0) for `1 KiB`."""
    match = _QUANTITY.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2]) or _UNITS.get(match[2].lower())
    return None if match is None or unit is None else (unit[0], float(match[1]) * unit[1])
