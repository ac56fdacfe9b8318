"""Functions on lists, sets, maps and objects."""

from __future__ import annotations

from itertools import product
from typing import Any

from yurt_jobspec.numbers import Number, add
from yurt_jobspec.values import (
    ConversionError,
    ListValue,
    MapValue,
    Null,
    SetValue,
    Type,
    Value,
    convert,
    entries_of,
    equal,
    is_null,
    items_of,
    make_set,
    sort_key,
    type_name,
    type_of,
    unify,
)

from .registry import Arguments, FunctionError

_MAX_RANGE = 1024
_MAX_PRODUCT = 100_000


def _sequence(value: Value, argument: int | None = None) -> tuple[Value, ...]:
    items = items_of(value)
    if items is None:
        raise FunctionError("a list, set or tuple is required", argument)
    return items


def _entries(value: Value, argument: int | None = None) -> dict[str, Value]:
    entries = entries_of(value)
    if entries is None:
        raise FunctionError("a map or object is required", argument)
    return entries


def _list(value: Value, detail: str, argument: int | None = None) -> tuple[Value, ...]:
    """The elements of a list or tuple; raises for a set, which has no order."""
    items = items_of(value)
    if items is None or isinstance(value, SetValue):
        raise FunctionError(f"{detail}; got {type_name(type_of(value))}", argument)
    return items


def _whole(value: Number, argument: int | None) -> int:
    if not isinstance(value, int):
        raise FunctionError("a whole number is required", argument)
    return value


def _like(value: Value, items: tuple[Value, ...]) -> Value:
    """The items as a list if the original is a list or set, otherwise as a tuple."""
    return ListValue(value.element, items) if isinstance(value, (ListValue, SetValue)) else items


def _common(values: list[Value], detail: str) -> Type:
    common = unify([type_of(value) for value in values])
    if common is None:
        raise FunctionError(detail)
    return common


def chunklist(args: Arguments) -> Value:
    items, size = _sequence(args[0], 0), _whole(args[1], 1)
    if size < 0:
        raise FunctionError("the size must not be negative", 1)
    if not size:
        chunks: tuple[Value, ...] = (_like(args[0], items),) if items else ()
    else:
        chunks = tuple(_like(args[0], items[at : at + size]) for at in range(0, len(items), size))
    if isinstance(args[0], (ListValue, SetValue)):
        return ListValue(("list", args[0].element), chunks)
    return chunks


def coalesce(args: Arguments) -> Value:
    for value in args:
        if not is_null(value):
            return convert(value, _common(args, "all arguments must have the same type"))
    raise FunctionError("no non-null arguments")


def coalescelist(args: Arguments) -> Value:
    lists = [value for value in args if not isinstance(value, Null)]
    found = [value for value in lists if _list(value, "all arguments must be lists or tuples")]
    if not found:
        raise FunctionError("no non-null and non-empty arguments")
    return found[0]


def compact(args: Arguments) -> Value:
    return ListValue("string", tuple(item for item in args[0].items if isinstance(item, str) and item))


def concat(args: Arguments) -> Value:
    if not args:
        raise FunctionError("at least one argument is required")
    items = tuple(
        item
        for index, value in enumerate(args)
        for item in _list(value, "all arguments must be lists or tuples", index)
    )
    if all(isinstance(value, ListValue) for value in args):
        common = unify([value.element for value in args])
        if common is not None:
            return ListValue(common, tuple(convert(item, common) for item in items))
    return items


def contains(args: Arguments) -> bool:
    return any(equal(item, args[1]) for item in _sequence(args[0]))


def distinct(args: Arguments) -> Value:
    seen: dict[Any, Value] = {}
    for item in args[0].items:
        seen.setdefault(sort_key(item), item)
    return ListValue(args[0].element, tuple(seen.values()))


def element(args: Arguments) -> Value:
    """The element at an index, modulo the length; a negative index counts from the end."""
    items, index = _list(args[0], "a list or tuple is required"), _whole(args[1], None)
    if not items:
        raise FunctionError("cannot use element function with an empty list")
    return items[index % len(items)]


def flatten(args: Arguments) -> Value:
    flat: list[Value] = []
    waiting = [iter(_sequence(args[0]))]
    while waiting:
        for item in waiting[-1]:
            inner = items_of(item)
            if inner is not None:
                waiting.append(iter(inner))
                break
            flat.append(item)
            if len(flat) > _MAX_PRODUCT:
                raise FunctionError("the result is too large")
        else:
            waiting.pop()
    return tuple(flat)


def index(args: Arguments) -> Value:
    """The element at a key, as in collection[key]."""
    collection, key = args
    items = items_of(collection)
    if items is not None and not isinstance(collection, SetValue):
        if not isinstance(key, int) or isinstance(key, bool):
            raise FunctionError("key for tuple must be number")
        if not 0 <= key < len(items):
            raise FunctionError("key must be between 0 and the length of the list")
        return items[key]
    if not isinstance(collection, MapValue):
        raise FunctionError("collection must be a list, a map or a tuple")
    entries = collection.items
    if not isinstance(key, str):
        raise FunctionError("key for a map must be string")
    if key not in entries:
        raise FunctionError("the given key is not in the map")
    return entries[key]


def keys(args: Arguments) -> Value:
    names = tuple(sorted(_entries(args[0], 0)))
    return ListValue("string", names) if isinstance(args[0], MapValue) else names


def values(args: Arguments) -> Value:
    entries = _entries(args[0])
    items = tuple(entries[name] for name in sorted(entries))
    return ListValue(args[0].element, items) if isinstance(args[0], MapValue) else items


def length(args: Arguments) -> int:
    value = args[0]
    items = items_of(value)
    if items is not None:
        return len(items)
    if isinstance(value, MapValue):
        return len(value.items)
    raise FunctionError("collection must be a list, a map or a tuple")


def lookup(args: Arguments) -> Value:
    entries, key, default = _entries(args[0], 0), args[1], args[2]
    if isinstance(args[0], MapValue):
        try:
            default = convert(default, args[0].element)
        except ConversionError as error:
            raise FunctionError(f"the default value must have the type of the map's elements: {error}", 2) from None
    if key not in entries:
        return default
    return entries[key]


def merge(args: Arguments) -> Value:
    merged: dict[str, Value] = {}
    elements: list[Type] = []
    for value in args:
        if is_null(value):
            continue
        merged.update(_entries(value))
        elements.append(value.element if isinstance(value, MapValue) else None)
    if elements and all(item is not None and item == elements[0] for item in elements):
        return MapValue(elements[0], merged)
    return merged


def range_(args: Arguments) -> Value:
    """range(limit), range(start, limit) or range(start, limit, step), without the limit."""
    if not 1 <= len(args) <= 3:
        raise FunctionError("must have one, two, or three arguments")
    start: Number = 0 if len(args) == 1 else args[0]
    limit: Number = args[0] if len(args) == 1 else args[1]
    down = start > limit
    step: Number = args[2] if len(args) == 3 else -1 if down else 1
    if not step or (step < 0) != down:
        if start == limit:
            return ListValue("number", ())
        if not step and not down:
            raise FunctionError("step must not be zero")
        raise FunctionError("the step leads away from the limit", 1)
    numbers: list[Number] = []
    while start > limit if down else start < limit:
        numbers.append(start)
        if len(numbers) > _MAX_RANGE:
            raise FunctionError(f"more than {_MAX_RANGE} values would be generated")
        start = add(start, step)
    return ListValue("number", tuple(numbers))


def _same_sets(args: Arguments) -> tuple[Type, list[SetValue]]:
    common = unify([value.element for value in args])
    if common is None:
        raise FunctionError("all sets must have the same element type")
    return common, [convert(value, ("set", common)) for value in args]


def setintersection(args: Arguments) -> Value:
    common, sets = _same_sets(args)
    shared = set.intersection(*({sort_key(item) for item in value.items} for value in sets))
    return make_set(common, (item for item in sets[0].items if sort_key(item) in shared))


def setunion(args: Arguments) -> Value:
    common, sets = _same_sets(args)
    return make_set(common, (item for value in sets for item in value.items))


def setproduct(args: Arguments) -> Value:
    """All combinations of one element of each collection; a set if all collections are sets."""
    if len(args) < 2:
        raise FunctionError("at least two arguments are required")
    columns = [_sequence(value, at) for at, value in enumerate(args)]
    count = 1
    for column in columns:
        count *= len(column)
    if count > _MAX_PRODUCT:
        raise FunctionError(f"more than {_MAX_PRODUCT} combinations would be generated")
    types = [_column_type(value, column) for value, column in zip(args, columns, strict=True)]
    rows = [tuple(convert(item, common) for item, common in zip(row, types, strict=True)) for row in product(*columns)]
    element_type = ("tuple", tuple(types))
    if all(isinstance(value, SetValue) for value in args):
        return make_set(element_type, rows)
    return ListValue(element_type, tuple(rows))


def _column_type(value: Value, column: tuple[Value, ...]) -> Type:
    return (
        value.element
        if isinstance(value, (ListValue, SetValue))
        else _common(list(column), "all elements must have the same type")
    )


def slice_(args: Arguments) -> Value:
    items, start, end = _sequence(args[0], 0), _whole(args[1], 1), _whole(args[2], 2)
    if isinstance(args[0], SetValue):
        raise FunctionError("cannot slice a set, because its elements do not have indices", 0)
    if not 0 <= start <= len(items):
        raise FunctionError("start index must not be greater than the length of the list", 1)
    if 0 <= end < start:
        raise FunctionError("start index must not be greater than end index", 1)
    if not start <= end <= len(items):
        raise FunctionError("end index must be between the start index and the length of the list", 2)
    return _like(args[0], items[start:end])


def sort(args: Arguments) -> Value:
    for at, item in enumerate(args[0].items):
        if not isinstance(item, str):
            raise FunctionError(f"list element {at} is null; a null string cannot be sorted")
    return ListValue("string", tuple(sorted(args[0].items)))


def zipmap(args: Arguments) -> Value:
    names, items = args[0].items, _list(args[1], "the values must be a list or tuple")
    for at, name in enumerate(names):
        if not isinstance(name, str):
            raise FunctionError(f"key {at} is null")
    if len(names) != len(items):
        raise FunctionError(f"number of keys ({len(names)}) does not match number of values ({len(items)})")
    entries = dict(zip(names, items, strict=True))
    return MapValue(args[1].element, entries) if isinstance(args[1], ListValue) else entries
