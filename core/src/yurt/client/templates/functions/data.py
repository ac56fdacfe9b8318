"""JSON, YAML, TOML and base64 in templates."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from yurt.client.templates.functions.arguments import plain, raw, text
from yurt.gotemplate import EvaluationFailure
from yurt.gotemplate.values import float_text

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPE = re.compile("[<>&\u2028\u2029]")


def parse_json(document: object) -> Any:
    """The data of a JSON text; an empty text is an empty map."""
    body = text(document)
    if not body:
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EvaluationFailure(f"the text is not valid JSON: {error}") from None


def to_json(value: object, *, indent: int = 0, is_escaped: bool = True) -> str:
    """Go's JSON: keys sorted, no spaces, `<`, `>` and `&` escaped unless not wanted."""
    body = json.dumps(
        _finite(plain(value)),
        sort_keys=True,
        indent=indent or None,
        ensure_ascii=False,
        separators=(",", ": ") if indent else (",", ":"),
    )
    return _ESCAPE.sub(lambda match: _ESCAPED[match[0]], body) if is_escaped else body


def _finite(value: Any) -> Any:
    """Numbers in Go's format: a float without a fraction is printed without one."""
    match value:
        case float():
            if not math.isfinite(value):
                raise EvaluationFailure(f"json: unsupported value: {float_text(value)}")
            return int(value) if value.is_integer() and abs(value) < 1e15 else value
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list():
            return [_finite(each) for each in value]
    return value


def parse_yaml(document: object) -> Any:
    """The data of a YAML text; an empty text is an empty map."""
    from yurt_jobspec.functions.yaml import YamlError, read_yaml

    body = text(document)
    if not body.strip():
        return {}
    try:
        return _numbers(read_yaml(body))
    except YamlError as error:
        raise EvaluationFailure(f"the text is not supported YAML: line {error.line}: {error.detail}") from None


def _numbers(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case Mapping():
            return {str(key): _numbers(each) for key, each in value.items()}
        case list() | tuple():
            return [_numbers(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return _numbers(Decimal(str(value))) if re.fullmatch(r"[-+0-9.eE]+", str(value)) else str(value)


def to_yaml(value: object) -> str:
    """Plain YAML with sorted keys, without the line's end."""
    return "\n".join(_yaml(plain(value), 0)).strip("\n")


def _yaml(value: Any, indent: int) -> list[str]:
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, dict) and value:
        for key in sorted(value):
            lines += _yaml_entry(f"{pad}{_yaml_line(key)}:", value[key], indent)
        return lines
    if isinstance(value, list) and value:
        for each in value:
            first, *others = _yaml(each, indent + 2)
            lines += [f"{pad}- {first.strip() if isinstance(each, dict | list) and each else first}", *others]
        return lines
    return [_yaml_scalar(value, indent)]


def _yaml_entry(head: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, dict) and value:
        return [head, *_yaml(value, indent + 4)]
    if isinstance(value, list) and value:
        return [head, *_yaml(value, indent + 4)]
    first, *rest = _yaml(value, indent + 4)
    return [f"{head} {first}", *rest]


def _yaml_scalar(value: Any, indent: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float_text(value).replace("+Inf", ".inf").replace("NaN", ".nan")
        case dict():
            return "{}"
        case list():
            return "[]"
    return _yaml_text(value, indent)


def _yaml_text(value: str, indent: int) -> str:
    """A text on one line, or as a block of lines."""
    if not _is_block(value):
        return _yaml_line(value)
    pad, sign = " " * indent, "|" if value.endswith("\n") else "|-"
    lines = value.removesuffix("\n").split("\n")
    return "\n".join([sign, *(f"{pad}{line}" if line else "" for line in lines)])


def _yaml_line(value: str) -> str:
    """A text unquoted where that reads back as the same text, else in double quotes."""
    from yurt_jobspec.functions.yaml import YamlError, read_yaml

    is_plain = bool(value) and value == value.strip() and value.isprintable() and value != "<<"
    if is_plain and not value.startswith(tuple("-?:,[]{}#&*!|>'\"%@`")) and not re.search(r"[:#][ ]|[ ]#|:$", value):
        try:
            if read_yaml(value) == value:
                return value
        except YamlError:
            pass
    return "".join(map(_yaml_shown, json.dumps(value, ensure_ascii=False)))


def _yaml_shown(char: str) -> str:
    """A character in double quotes; JSON leaves some as they are that YAML does not allow."""
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _is_block(value: str) -> bool:
    """Several lines that stand well as they are."""
    is_shown = "\n" in value and all(each.isprintable() or each == "\n" for each in value)
    return is_shown and not value.startswith((" ", "\n")) and not value.endswith("\n\n")


def to_toml(value: object) -> str:
    """A map as TOML: values first, then tables."""
    data = plain(value)
    if not isinstance(data, dict):
        raise EvaluationFailure("toTOML wants a map")
    return "\n".join(_toml(data, ())).strip("\n")


def _toml(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    lines, inner = [], []
    for key in sorted(table):
        value = table[key]
        if isinstance(value, dict):
            here = (*path, _toml_key(key))
            inner += ["", f"[{'.'.join(here)}]", *_toml(value, here)]
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            here = (*path, _toml_key(key))
            for each in value:
                inner += ["", f"[[{'.'.join(here)}]]", *_toml(each, here)]
        elif value is not None:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")
    return lines + inner


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
        case list():
            return f"[{', '.join(map(_toml_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_toml_key(key)} = {_toml_value(value[key])}' for key in sorted(value))}}}"
        case datetime.datetime():
            return value.isoformat()
        case None:
            raise EvaluationFailure("TOML has no null")
    return json.dumps(value, ensure_ascii=False)


def base64_decode(encoded: object, *, is_url: bool = False) -> str:
    """The text of a base64 text; padding may be absent in the form for URLs."""
    body = raw(encoded)
    padded = body + b"=" * (-len(body) % 4) if is_url else body
    try:
        found = base64.b64decode(padded, altchars=b"-_" if is_url else None, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationFailure(f"the text is not valid base64: {error}") from None
    return found.decode("utf-8", "surrogateescape")


def base64_encode(value: object, *, is_url: bool = False) -> str:
    """The text in base64."""
    return (base64.urlsafe_b64encode if is_url else base64.b64encode)(raw(value)).decode()
