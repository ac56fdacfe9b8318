"""The values of templates: kinds, truth, comparison and printing.

Values are None (Go's nil), booleans, whole numbers, floats, texts, bytes, lists or tuples, mappings and callables.
`MISSING` is what a mapping gives for a key that it has not: its fields are missing too, and to functions it is nil.
On its own nil prints as `<no value>`, inside other values as `<nil>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from yurt.gotemplate.errors import EvaluationFailure

PRINT_DEPTH_MAX = 60
EXPONENT_FROM = 6


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()


def kind_of(value: object) -> str:
    """Go's name for the type of a value."""
    match value:
        case None | _Missing():
            return "nil"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float64"
        case str():
            return "string"
        case bytes():
            return "[]uint8"
        case Mapping():
            return "map"
        case list() | tuple():
            return "slice"
    return "func" if isinstance(value, Callable) else type(value).__name__  # type: ignore[arg-type]


def fields_of(value: object) -> Mapping[str, object]:
    """What a value has besides its own content, under names that templates ask for; methods are callables.

    A text or a list is made one with fields by a subclass that has an attribute `go_fields`.
    """
    found = getattr(value, "go_fields", None)
    return found if isinstance(found, Mapping) else {}


def is_true(value: object) -> bool:
    """Not false, zero, nil or empty."""
    if value is None or value is MISSING:
        return False
    if isinstance(value, bool | int | float | str | bytes | list | tuple | Mapping):
        return bool(value)
    return True


def are_equal(first: object, second: object) -> bool:
    """Go's `eq`: values of one basic kind; numbers of both kinds are compared by value."""
    one, two = _basic(first), _basic(second)
    if "nil" in (one, two):
        return one == two
    if one != two:
        raise EvaluationFailure(f"incompatible types for comparison: {kind_of(first)} and {kind_of(second)}")
    if one in ("slice", "map", "func"):
        raise EvaluationFailure(f"non-comparable type: {kind_of(first)}")
    return first == second


def is_less(first: Any, second: Any) -> bool:
    """Go's `lt`: numbers or texts."""
    one, two = _basic(first), _basic(second)
    if one != two:
        raise EvaluationFailure(f"incompatible types for comparison: {kind_of(first)} and {kind_of(second)}")
    if one not in ("number", "string"):
        raise EvaluationFailure(f"invalid type for comparison: {kind_of(first)}")
    return bool(first < second)


def _basic(value: object) -> str:
    kind = kind_of(value)
    return "number" if kind in ("int", "float64") else kind


def sorted_items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """The entries in the order of their keys."""
    try:
        return sorted(mapping.items())
    except TypeError:
        return sorted(mapping.items(), key=lambda item: str(item[0]))


def printed(value: object) -> str:
    """The text of a value as Go prints it, on its own in a template."""
    return "<no value>" if value is MISSING or value is None else text_of(value)


def text_of(value: object, *, depth: int = 0) -> str:
    """Go's `%v`."""
    if isinstance(value, str):
        return value
    if value is None or value is MISSING:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float_text(value)
    if depth > PRINT_DEPTH_MAX:
        raise EvaluationFailure(f"the value is nested deeper than {PRINT_DEPTH_MAX}")
    if isinstance(value, Mapping):
        entries = (
            f"{text_of(key, depth=depth + 1)}:{text_of(each, depth=depth + 1)}" for key, each in sorted_items(value)
        )
        return f"map[{' '.join(entries)}]"
    if isinstance(value, bytes | list | tuple):
        return f"[{' '.join(text_of(each, depth=depth + 1) for each in value)}]"
    return str(value)


def float_text(value: float) -> str:
    """The shortest text of a float, with an exponent below 1e-4 and from 1e6 on (`%v`)."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    mantissa, _, power = f"{value!r}".lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(power or 0)
    digits = digits.rstrip("0") or "0"
    exponent = point - 1
    if exponent < -4 or exponent >= EXPONENT_FROM:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    padded = digits.ljust(point, "0")
    return sign + padded[:point] + (f".{padded[point:]}" if len(padded) > point else "")
