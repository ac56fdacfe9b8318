"""Functions that encode and decode data: base64, CSV, JSON, YAML, URLs."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
import re
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

from yurt_jobspec.numbers import Number, from_decimal, to_text
from yurt_jobspec.syntax.expressions import normalize
from yurt_jobspec.values import ListValue, Value, entries_of, is_null, items_of

from .registry import Arguments, FunctionError

_MAX_DEPTH = 100
_MAX_ELEMENTS = 200_000
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def base64decode(args: Arguments) -> str:
    try:
        return base64.b64decode(args[0], validate=True).decode()
    except binascii.Error:
        raise FunctionError("the text is not base64", 0) from None
    except UnicodeDecodeError:
        raise FunctionError("the decoded bytes are not UTF-8 text", 0) from None


def base64encode(args: Arguments) -> str:
    return base64.b64encode(args[0].encode()).decode()


def csvdecode(args: Arguments) -> Value:
    rows = [row for row in csv.reader(io.StringIO(args[0], newline=""), strict=True) if row]
    if not rows:
        raise FunctionError("the first line must hold the names of the columns")
    header, records = rows[0], rows[1:]
    if len(set(header)) != len(header):
        raise FunctionError("two columns have the same name", 0)
    for number, row in enumerate(records, 2):
        if len(row) != len(header):
            raise FunctionError(f"record {number} has {len(row)} fields, the header {len(header)}", 0)
    element = ("object", tuple((name, "string") for name in sorted(header)))
    return ListValue(element, tuple(dict(zip(header, row, strict=True)) for row in records))


def jsondecode(args: Arguments) -> Value:
    try:
        data = json.loads(args[0], parse_int=_number, parse_float=_number, parse_constant=_refuse)
        return from_data(data)
    except RecursionError:
        raise FunctionError("the data is nested too deeply", 0) from None
    except ValueError as error:
        raise FunctionError(f"invalid JSON: {error}") from None


def _number(text: str) -> Number:
    return from_decimal(Decimal(text))


def _refuse(text: str) -> Number:
    raise ValueError(f"{text} is not JSON")


def from_data(data: Any) -> Value:
    """Decoded JSON or YAML as a value; lists become tuples."""
    return _from_data(data, 0, [_MAX_ELEMENTS])


def _from_data(data: Any, depth: int, left: list[int]) -> Value:
    left[0] -= 1
    if depth > _MAX_DEPTH or left[0] < 0:
        raise FunctionError("the data is nested too deeply" if left[0] >= 0 else "the data has too many elements", 0)
    if isinstance(data, list):
        return tuple(_from_data(item, depth + 1, left) for item in data)
    if isinstance(data, dict):
        return {normalize(key): _from_data(item, depth + 1, left) for key, item in data.items()}
    return normalize(data) if isinstance(data, str) else data


def jsonencode(args: Arguments) -> str:
    return json_text(args[0])


def json_text(value: Value) -> str:
    """Compact JSON with sorted keys; characters with a meaning in HTML are escaped."""
    if is_null(value):
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, Decimal):
        return to_text(value)
    if type(value) is str:
        return quoted(value)
    items = items_of(value)
    if items is not None:
        return "[" + ",".join(json_text(item) for item in items) + "]"
    entries = entries_of(value)
    assert entries is not None, type(value)
    return "{" + ",".join(f"{quoted(key)}:{json_text(entries[key])}" for key in sorted(entries)) + "}"


def quoted(text: str) -> str:
    """A JSON string."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def urlencode(args: Arguments) -> str:
    return quote_plus(args[0], safe="-_.~")


def yamldecode(args: Arguments) -> Value:
    from .yaml import YamlError, read_yaml

    try:
        return from_data(read_yaml(args[0]))
    except YamlError as error:
        raise FunctionError(f"on line {error.line}: {error.detail}") from None


def yamlencode(args: Arguments) -> str:
    from .yaml import write_yaml

    return write_yaml(args[0])
