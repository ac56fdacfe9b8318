"""Domain values as the JSON of Nomad's HTTP API.

Every field of Nomad's API is written, with the exact spelling of the API and in alphabetical order, as Go's codec does;
fields of our own, and a few that Nomad leaves out, only when they are set (`WHEN_SET`). Times are RFC 3339, bytes are
base64, and an empty list or map is `null`, save where Nomad always makes one (`NEVER_NULL`). The way to write a type is
worked out once and kept: a tuple of keys, one getter that fetches all fields at C speed, and converters for the few
fields that need one.
"""

from __future__ import annotations

import base64
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from yurt.api.times import rfc3339

Convert = Callable[[Any], Any]

NEVER_NULL = frozenset(
    {
        ("AllocatedResources", "Tasks"),
        ("AllocResourceUsage", "Tasks"),
        ("CpuStats", "Measured"),
        ("Evaluation", "QueuedAllocations"),
        ("JobSummary", "Summary"),
        ("MemoryStats", "Measured"),
        ("Node", "Attributes"),
        ("Node", "Drivers"),
        ("Node", "Links"),
        ("Node", "Meta"),
        ("PlanAnnotations", "DesiredTGUpdates"),
        ("TaskEvent", "Details"),
    }
)
"""(type, wire field) of collections that Nomad writes as `[]` or `{}` when they are empty."""

_PLAIN = frozenset({str, int, bool, float, type(None)})
"""Types that JSON has itself."""

_plans: dict[type, Convert] = {}
Made = dict[type, Convert | None]
"""Converters in the making, by type; None while one is being compiled."""
_encoder = msgspec.json.Encoder(order="deterministic")


def to_wire(value: Any) -> Any:
    """Structs, and containers of them, as builtins in the shape of the API."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, msgspec.Struct):
        return struct_converter(type(value))(value)
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in value]
    if type(value) is dict or isinstance(value, Mapping):
        return {key: item if type(item) in _PLAIN else to_wire(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def encode_json(value: Any, *, pretty: bool = False) -> bytes:
    """JSON of a value; `pretty` indents by four and ends the line."""
    return encode_builtins(to_wire(value), pretty=pretty)


def encode_builtins(wire: Any, *, pretty: bool = False) -> bytes:
    """JSON of a result of `to_wire`."""
    data = _encoder.encode(wire)
    return pretty_json(data) if pretty else data


def pretty_json(data: bytes) -> bytes:
    """JSON indented by four, with a newline at the end."""
    return msgspec.json.format(data, indent=4) + b"\n"


class WireView(Mapping[str, Any]):
    """A struct as the API would write it, converted field by field on access: filters read few fields of many rows."""

    __slots__ = ("_fields", "_value")

    def __init__(self, value: msgspec.Struct) -> None:
        self._value = value
        self._fields = _fields_of(type(value))

    def __getitem__(self, key: str) -> Any:
        name, convert = self._fields[key]
        value = getattr(self._value, name)
        return value if convert is None else convert(value)

    def __contains__(self, key: object) -> bool:
        """Whether the type has the field."""
        return key in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@functools.cache
def _fields_of(cls: type) -> dict[str, tuple[str, Convert | None]]:
    """Name and converter of each written field, by its spelling on the wire."""
    made: Made = {}
    fields = {
        each.encode_name: (
            each.name,
            _converter(each.type, made, is_never_null=(cls.__name__, each.encode_name) in NEVER_NULL),
        )
        for each in _described(cls).fields
        if not _is_internal(each)
    }
    _keep(made)
    return fields


def struct_converter(cls: type) -> Convert:
    """The function that turns a struct of this type into a dict, made once."""
    found = _plans.get(cls)
    if found is None:
        made: Made = {}
        _late(_described(cls), made)
        _keep(made)
        found = _plans[cls]
    return found


def _described(cls: type) -> inspect.StructType:
    """The type and all that it holds, which takes milliseconds and hundreds of kilobytes: the caller drops it again."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), cls
    return info


def _keep(made: Made) -> None:
    """Offer converters to all threads, once those of the types that they hold are there too."""
    _plans.update({cls: convert for cls, convert in made.items() if convert is not None})


def _compile(info: inspect.StructType, made: Made) -> Convert:
    written = (field for field in info.fields if not _is_internal(field))
    fields = sorted(written, key=lambda field: field.encode_name)
    keys = tuple(field.encode_name for field in fields)
    converts = tuple(
        (field.encode_name, convert)
        for field in fields
        if (convert := _converter(field.type, made, is_never_null=(info.cls.__name__, field.encode_name) in NEVER_NULL))
        is not None
    )
    optional = tuple((field.encode_name, _default(field)) for field in fields if _is_optional(field))
    if not keys:
        return lambda _: {}
    if len(keys) == 1:
        name = fields[0].name
        return _convert_single(keys[0], name, converts)
    get = operator.attrgetter(*(field.name for field in fields))

    def convert_struct(value: Any) -> dict[str, Any]:
        wire = dict(zip(keys, get(value), strict=True))
        unset = [key for key, default in optional if wire[key] == default]
        for key, convert in converts:
            wire[key] = convert(wire[key])
        for key in unset:
            del wire[key]
        return wire

    return convert_struct


def _is_optional(field: inspect.Field) -> bool:
    """Whether the field is written only when it is set."""
    return isinstance(field.type, inspect.Metadata) and (field.type.extra or {}).get("wire") == "when set"


def _is_internal(field: inspect.Field) -> bool:
    """Whether the field is never written."""
    return isinstance(field.type, inspect.Metadata) and (field.type.extra or {}).get("wire") == "never"


def _default(field: inspect.Field) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _convert_single(key: str, name: str, converts: tuple[tuple[str, Convert], ...]) -> Convert:
    if not converts:
        return lambda value: {key: getattr(value, name)}
    convert = converts[0][1]
    return lambda value: {key: convert(getattr(value, name))}


def _converter(kind: inspect.Type, made: Made, *, is_never_null: bool = False) -> Convert | None:
    """How to write a field of this kind; None when its value is JSON as it is. Adds to `made` what it compiles."""
    match kind:
        case inspect.Metadata():
            extra = kind.extra or {}
            if "implied" in extra:
                return _or_implied(_converter(kind.type, made), extra["implied"])
            return _BY_MARK.get(extra.get("wire", "")) or _converter(kind.type, made)
        case inspect.StructType():
            return _late(kind, made)
        case inspect.UnionType():
            return _optional(kind, made)
        case inspect.VarTupleType() | inspect.ListType():
            return _list_converter(_converter(kind.item_type, made), is_never_null=is_never_null)
        case inspect.DictType():
            return _map_converter(_converter(kind.value_type, made), is_never_null=is_never_null)
        case inspect.BytesType():
            return lambda value: base64.b64encode(value).decode() if value else None
        case inspect.AnyType():
            return _free_form
        case _:
            return None


def _true_or_null(value: Any) -> Any:
    return True if value else None


_BY_MARK: dict[str, Convert] = {"rfc3339": rfc3339, "true or null": _true_or_null}
"""Converters of fields that declare their format."""


def _or_implied(convert: Convert | None, implied: Any) -> Convert:
    """Writes the default of an absent value."""
    assert convert is not None
    return lambda value: convert(implied if value is None else value)


def _late(info: inspect.StructType, made: Made) -> Convert:
    """Compiles the type, and looks its converter up at each use, because types may be recursive."""
    cls = info.cls
    if cls not in made and cls not in _plans:
        made[cls] = None
        made[cls] = _compile(info, made)

    def convert(value: Any) -> Any:
        return _plans[cls](value)

    return convert


def _optional(kind: inspect.UnionType, made: Made) -> Convert | None:
    inner = [item for item in kind.types if not isinstance(item, inspect.NoneType)]
    convert = _converter(inner[0], made, is_never_null=True) if len(inner) == 1 else None
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _list_converter(convert: Convert | None, *, is_never_null: bool) -> Convert:
    if convert is None:
        return (lambda value: value) if is_never_null else (lambda value: value or None)
    if is_never_null:
        return lambda value: [convert(item) for item in value]
    return lambda value: [convert(item) for item in value] if value else None


def _map_converter(convert: Convert | None, *, is_never_null: bool) -> Convert:
    if convert is None:
        return (lambda value: value) if is_never_null else (lambda value: value or None)
    if is_never_null:
        return lambda value: {key: convert(item) for key, item in value.items()}
    return lambda value: {key: convert(item) for key, item in value.items()} if value else None


def _free_form(value: Any) -> Any:
    """Values without a type: structs inside are written as the API does, all else as it is."""
    return to_wire(value) if isinstance(value, msgspec.Struct | Mapping | list | tuple | bytes) else value
