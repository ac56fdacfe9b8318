"""Constraint operators on resolved values (semantics 17). A side that did not resolve is None.

A value that cannot be parsed makes the constraint false, never an error: registration refuses such constraints, and a
node's attribute may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from yurt.scheduler.regexps import compiled
from yurt.scheduler.versions import is_version_within

DISTINCT_HOSTS = "distinct_hosts"
DISTINCT_PROPERTY = "distinct_property"


def holds(operand: str, left: str | None, right: str | None) -> bool:
    """Whether `left operand right`; an unknown operand never holds."""
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
    """The same as `holds` for many left sides, in their order; equal ones are compared once."""
    pattern = compiled(right) if operand == "regexp" else None
    if pattern is not None:
        return pattern.search_all(lefts)
    known = {left: holds(operand, left, right) for left in dict.fromkeys(lefts)}
    return [known[left] for left in lefts]


def _is_ordered(operand: str) -> Callable[[str, str], bool]:
    def compare(left: str, right: str) -> bool:
        for parse in (_integer, _number):
            one, other = parse(left), parse(right)
            if one is not None and other is not None:
                return _ORDERS[operand](_sign(one, other))
        return _ORDERS[operand]((left > right) - (left < right))

    return compare


def _sign(one: float, other: float) -> int:
    return (one > other) - (one < other)


def _integer(text: str) -> float | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _matches(left: str, right: str) -> bool:
    pattern = compiled(right)
    return pattern is not None and pattern.search(left)


def _items(text: str) -> set[str]:
    return {item.strip() for item in text.split(",")}


_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}
_TWO_SIDED: dict[str, Callable[[str, str], bool]] = {
    **{operand: _is_ordered(operand) for operand in _ORDERS},
    "regexp": _matches,
    "version": lambda left, right: is_version_within(left, right, strict=False),
    "semver": lambda left, right: is_version_within(left, right, strict=True),
    "set_contains": lambda left, right: _items(right) <= _items(left),
    "set_contains_all": lambda left, right: _items(right) <= _items(left),
    "set_contains_any": lambda left, right: bool(_items(right) & _items(left)),
}
