"""The values of the language and their types.

Strings, bools and numbers are Python's own (a number is int or Decimal, see `numbers`). A tuple value is a Python
tuple and an object value a dict that nobody changes; those two know the type of each element. The collections whose
elements share one type are ListValue, SetValue and MapValue. None is the null of no particular type, Null the null of
a known one.

A type is "string", "number", "bool" or "any", or a pair such as ("list", element), ("tuple", (types...)), ("object",
((name, type), ...)). Types are compared with ==; there are no unknown values, because a job file is evaluated when
everything it refers to is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from .numbers import Number, parse_number, to_text

Type = Any
Value = Any
"""Both are recursive unions that mypy cannot follow cheaply; this module is the only one that looks inside them."""

PRIMITIVES = ("string", "number", "bool")


class Null(NamedTuple):
    """A null with its type."""

    type: Type


class ListValue(NamedTuple):
    """Values of one type in order."""

    element: Type
    items: tuple[Value, ...]


class SetValue(NamedTuple):
    """Distinct values of one type, sorted."""

    element: Type
    items: tuple[Value, ...]


class MapValue(NamedTuple):
    """Values of one type by string key."""

    element: Type
    items: dict[str, Value]


class ConversionError(Exception):
    """A value cannot be converted; the text gives the reason."""


class TooLarge(Exception):
    """A value exceeds the size limit."""


_MAX_TYPE_STEPS = 200_000
_SEQUENCES = (ListValue, SetValue)


def is_null(value: Value) -> bool:
    return value is None or type(value) is Null


def type_of(value: Value) -> Type:
    """The type of a value; raises TooLarge when shared parts make the type itself too large."""
    return _type_of(value, [_MAX_TYPE_STEPS])


def _type_of(value: Value, steps: list[int]) -> Type:
    kind = type(value)
    if kind is str:
        return "string"
    if kind is bool:
        return "bool"
    if kind is int or kind is Decimal:
        return "number"
    if value is None:
        return "any"
    if kind is Null:
        return value.type
    steps[0] -= 1
    if steps[0] < 0:
        raise TooLarge
    if kind is tuple:
        return ("tuple", tuple(_type_of(item, steps) for item in value))
    if kind is dict:
        return ("object", tuple((name, _type_of(value[name], steps)) for name in sorted(value)))
    if kind is ListValue:
        return ("list", value.element)
    if kind is SetValue:
        return ("set", value.element)
    assert kind is MapValue, kind
    return ("map", value.element)


def type_name(target: Type) -> str:
    """The type's name in messages."""
    if isinstance(target, str):
        return "any type" if target == "any" else target
    kind, inner = target
    if kind in ("tuple", "object"):
        return str(kind)
    return f"{kind} of {type_name(inner)}"


def items_of(value: Value) -> tuple[Value, ...] | None:
    """The elements of a sequence; None for other values."""
    if type(value) is tuple:
        return value
    return value.items if type(value) in _SEQUENCES else None


def entries_of(value: Value) -> dict[str, Value] | None:
    """The entries of an object or map; None for other values."""
    if type(value) is dict:
        return value
    return value.items if type(value) is MapValue else None


def pairs_of(value: Value) -> Iterator[tuple[Value, Value]] | None:
    """The ordered (key, value) pairs of a collection; a set's keys are its values. None for other values."""
    if type(value) is SetValue:
        return ((item, item) for item in value.items)
    items = items_of(value)
    if items is not None:
        return iter(enumerate(items))
    entries = entries_of(value)
    return None if entries is None else ((key, entries[key]) for key in sorted(entries))


# Conversion.


def convert(value: Value, target: Type) -> Value:
    """The value converted to the type; raises ConversionError."""
    if target == "any":
        return value
    if is_null(value):
        return Null(target)
    if isinstance(target, str):
        return _PRIMITIVE_CONVERSIONS[target](value)
    return _COMPOUND_CONVERSIONS[target[0]](value, target[1])


def _to_string(value: Value) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is Decimal:
        return to_text(value)
    raise ConversionError(f"string required, but have {type_name(type_of(value))}")


def _to_number(value: Value) -> Number:
    if type(value) is int or type(value) is Decimal:
        return value
    if type(value) is str:
        try:
            return parse_number(value.strip())
        except ValueError:
            pass
    raise ConversionError("a number is required")


def _to_bool(value: Value) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in ("true", "false", "1", "0"):
        return value in ("true", "1")
    raise ConversionError("a bool is required")


_PRIMITIVE_CONVERSIONS = {"string": _to_string, "number": _to_number, "bool": _to_bool}


def _elements(value: Value, target: str, inner: Type) -> tuple[Type, tuple[Value, ...]]:
    items = items_of(value)
    if items is None:
        raise ConversionError(f"{type_name((target, inner))} required, but have {type_name(type_of(value))}")
    if inner == "any":
        inner = _common(items)
    return inner, tuple(convert(item, inner) for item in items)


def _common(items: Iterable[Value]) -> Type:
    common = unify([type_of(item) for item in items])
    if common is None:
        raise ConversionError("all elements must have the same type")
    return common


def _to_list(value: Value, inner: Type) -> ListValue:
    return ListValue(*_elements(value, "list", inner))


def _to_set(value: Value, inner: Type) -> SetValue:
    return make_set(*_elements(value, "set", inner))


def make_set(element: Type, items: Iterable[Value]) -> SetValue:
    """A set of values that already have the element type."""
    distinct: list[Value] = []
    seen: set[Any] = set()
    for item in items:
        key = sort_key(item)
        if key not in seen:
            seen.add(key)
            distinct.append(item)
    return SetValue(element, tuple(sorted(distinct, key=sort_key)))


def sort_key(value: Value) -> Any:
    """A hashable key that sorts values of one type, nulls last; equal exactly for equal values."""
    if is_null(value):
        return (4,)
    if type(value) in (str, bool, int, Decimal):
        return (1, value)
    items = items_of(value)
    if items is not None:
        return (2, tuple(sort_key(item) for item in items))
    entries = entries_of(value)
    assert entries is not None
    return (3, tuple((key, sort_key(entries[key])) for key in sorted(entries)))


def _to_map(value: Value, inner: Type) -> MapValue:
    entries = entries_of(value)
    if entries is None:
        raise ConversionError(f"{type_name(('map', inner))} required, but have {type_name(type_of(value))}")
    if inner == "any":
        inner = _common(entries.values())
    return MapValue(inner, {key: convert(item, inner) for key, item in entries.items()})


def _to_tuple(value: Value, inner: tuple[Type, ...]) -> tuple[Value, ...]:
    items = items_of(value)
    if items is None or type(value) is SetValue:
        raise ConversionError(f"tuple required, but have {type_name(type_of(value))}")
    if len(items) != len(inner):
        raise ConversionError(f"tuple of {len(inner)} elements required, but have {len(items)}")
    return tuple(convert(item, target) for item, target in zip(items, inner, strict=True))


def _to_object(value: Value, inner: tuple[tuple[str, Type], ...]) -> dict[str, Value]:
    entries = entries_of(value)
    if entries is None:
        raise ConversionError(f"object required, but have {type_name(type_of(value))}")
    result = {}
    for name, target in inner:
        if isinstance(target, tuple) and target[0] == "optional":
            result[name] = convert(entries.get(name), target[1])
        elif name not in entries:
            raise ConversionError(f'attribute "{name}" is required')
        else:
            result[name] = convert(entries[name], target)
    return result


_COMPOUND_CONVERSIONS = {"list": _to_list, "set": _to_set, "map": _to_map, "tuple": _to_tuple, "object": _to_object}


# Unification.


def unify(types: list[Type]) -> Type | None:
    """The common type to which all of these convert; None without one."""
    distinct = list(dict.fromkeys(item for item in types if item != "any"))
    if len(distinct) < 2:
        return distinct[0] if distinct else "any"
    if all(isinstance(item, str) for item in distinct):
        return "string" if "string" in distinct else None
    if any(isinstance(item, str) for item in distinct):
        return None
    return _unify_compound(distinct)


def _unify_compound(types: list[Type]) -> Type | None:
    kinds = {kind for kind, _ in types}
    if kinds == {"object"} and len({tuple(name for name, _ in inner) for _, inner in types}) == 1:
        names = [name for name, _ in types[0][1]]
        members = [unify([inner[index][1] for _, inner in types]) for index in range(len(names))]
        if None not in members:
            return ("object", tuple(zip(names, members, strict=True)))
        return None
    if kinds == {"tuple"} and len({len(inner) for _, inner in types}) == 1:
        columns = [unify([inner[index] for _, inner in types]) for index in range(len(types[0][1]))]
        return None if None in columns else ("tuple", tuple(columns))
    if kinds <= {"object", "map"}:
        element = unify(
            [item for kind, inner in types for item in ([inner] if kind == "map" else [member for _, member in inner])]
        )
        return None if element is None else ("map", element)
    if kinds <= {"tuple", "list", "set"}:
        element = unify([item for kind, inner in types for item in (inner if kind == "tuple" else [inner])])
        target = "set" if "set" in kinds and "list" not in kinds and "tuple" not in kinds else "list"
        return None if element is None else (target, element)
    return None


def equal(left: Value, right: Value) -> bool:
    """Whether two values are equal: never for different types, always for two nulls."""
    if is_null(left) or is_null(right):
        return is_null(left) and is_null(right)
    left_number, right_number = type(left) in (int, Decimal), type(right) in (int, Decimal)
    if left_number or right_number:
        return left_number and right_number and bool(left == right)
    if type(left) is not type(right):
        return False
    if type(left) in (str, bool):
        return bool(left == right)
    return bool(type_of(left) == type_of(right) and sort_key(left) == sort_key(right))
