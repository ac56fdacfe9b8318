"""Values with every field set, generated from their types, for tests that hold for all kinds of rows."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
DEPTH_MAX: Final = 12
"""From here on collections are empty and optional fields None: some values hold others of their own kind."""


def filled(kind: type[T], number: int) -> T:
    """A value with every field set; texts are field names, and all of it depends on the number."""
    made: T = _made(inspect.type_info(kind), "", number, 0)
    return made


def _made(kind: inspect.Type, name: str, number: int, depth: int) -> Any:
    match kind:
        case inspect.StructType(cls=cls):
            fields = {field.name: _made(field.type, field.name, number, depth + 1) for field in kind.fields}
            return cls(**fields)
        case inspect.UnionType(types=types):
            others = [each for each in types if not isinstance(each, inspect.NoneType)]
            return None if len(others) < len(types) and depth > DEPTH_MAX else _made(others[0], name, number, depth)
        case inspect.VarTupleType(item_type=item):
            return () if depth > DEPTH_MAX else (_made(item, name, number, depth + 1),)
        case inspect.TupleType(item_types=items):
            return tuple(_made(item, name, number, depth + 1) for item in items)
        case inspect.DictType(key_type=key, value_type=value):
            made = _made(key, "key", number, depth + 1), _made(value, name, number, depth + 1)
            return {} if depth > DEPTH_MAX else {made[0]: made[1]}
        case inspect.Metadata(type=inner):
            return _made(inner, name, number, depth)
        case inspect.CustomType(cls=cls):
            return cls(number)
        case _:
            return _plain(kind, name, number)


def _plain(kind: inspect.Type, name: str, number: int) -> Any:
    match kind:
        case inspect.StrType() | inspect.AnyType():
            return f"{name}-{number}"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return number
        case inspect.FloatType():
            return number + 0.5
        case inspect.BytesType():
            return f"{name}-{number}".encode()
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case _:
            raise msgspec.ValidationError(f"no value is made for {kind}")
