"""Constraint operators on resolved values (docs/explanation/feasibility.md). An unresolved value is None.

A value that cannot be parsed makes the constraint false, never an error: registration refuses such constraints, and a
node's attribute may hold anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from yurt.scheduler.constraints.versions import is_version_within

if TYPE_CHECKING:
    from yurt.regexps import Regexp

DISTINCT_HOSTS = "distinct_hosts"
DISTINCT_PROPERTY = "distinct_property"


def holds(operand: str, left: str | None, right: str | None) -> bool:
    """Whether `left operand right` holds; false for an unknown operand."""
    if operand in ("=", "==", "is"):
        return left is not None and right is not None and left == right
    if operand in ("!=", "not"):
        return left != right
    if operand == "is_set":
        return left is not None
    if operand == "is_not_set":
        return left is None
    if left is None or right is None:
        return False
    compare = _TWO_SIDED.get(operand)
    return compare is not None and compare(left, right)


def answers(operand: str, right: str, lefts: Sequence[str | None]) -> list[bool]:
    """`holds` for many left sides, in order; equal values are compared once."""
    pattern = _compiled(right) if operand == "regexp" else None
    if pattern is not None:
        return pattern.search_all(lefts)
    answer_of = {left: holds(operand, left, right) for left in dict.fromkeys(lefts)}
    return [answer_of[left] for left in lefts]


def _is_ordered(operand: str) -> Callable[[str, str], bool]:
    order = _ORDERS[operand]

    def compare(left: str, right: str) -> bool:
        for parse in (_integer, _number):
            one, other = parse(left), parse(right)
            if one is not None and other is not None:
                return order(one, other)
        return order(left, right)

    return compare


def _integer(text: str) -> int | None:
    """The text as a 64-bit integer, or None."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _number(text: str) -> float | None:
    """The text as a decimal number within a float's range, or as `inf`, `infinity` (with or without a sign) or
    `nan`."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    number = float(text) if _DECIMAL.fullmatch(text) else None
    return number if number is not None and math.isfinite(number) else None


def _compiled(text: str) -> Regexp | None:
    from yurt.regexps import compiled

    return compiled(text)


def _matches(left: str, right: str) -> bool:
    pattern = _compiled(right)
    return pattern is not None and pattern.search(left)


def _items(text: str) -> set[str]:
    return {item.strip() for item in text.split(",")}


_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TWO_SIDED: dict[str, Callable[[str, str], bool]] = {
    **{operand: _is_ordered(operand) for operand in _ORDERS},
    "regexp": _matches,
    "version": lambda left, right: is_version_within(left, right, strict=False),
    "semver": lambda left, right: is_version_within(left, right, strict=True),
    "set_contains": lambda left, right: _items(right) <= _items(left),
    "set_contains_all": lambda left, right: _items(right) <= _items(left),
    "set_contains_any": lambda left, right: bool(_items(right) & _items(left)),
}
