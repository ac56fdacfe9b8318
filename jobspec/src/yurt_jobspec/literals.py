"""Values as the text of expressions, as a person would write them; the text evaluates to the same value.

A text that holds what looks like a template sequence is escaped (`$${`), unless it is a reference that the client
fills in later, such as `${attr.kernel.name}`: that one evaluates to its own text and is written as it is. Several
lines become a heredoc where that changes nothing; a heredoc has no escapes, so other texts stay between quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_IDENTIFIER = re.compile(r"[^\W\d][\w-]*")
_WORDS = ("true", "false", "null", "for", "if", "in", "var", "local")
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_SEQUENCE = re.compile(rf"((?<!\$)\$\{{(?!(?:{'|'.join(_WORDS)})\b){_NAME}(?:\.{_NAME}|\[\d{{1,9}}\])*\}})|([$%])\{{")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_MARKS = ("EOF", "EOT", "END_OF_TEXT")
_UNITS = (("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
_INT64 = 2**63


class Inexpressible(Exception):
    """The language has no expression for this value; the message gives the reason."""


def is_identifier(text: str) -> bool:
    """Whether the text is a valid argument name."""
    return text.isascii() and _IDENTIFIER.fullmatch(text) is not None


def string(text: str) -> str:
    """A quoted text."""
    return '"' + _SPECIAL.sub(_escape, _guarded(text)) + '"'


def label(text: str) -> str:
    """A quoted text where templates are not allowed."""
    return '"' + _SPECIAL.sub(_escape, re.sub(r"([$%])\{", r"\1\1{", text)) + '"'


def heredoc(text: str) -> str | None:
    """A text of several lines as a heredoc; None when it has no such form."""
    if "\n" not in text[:-1] or not text.endswith("\n") or _UNPRINTABLE.search(text):
        return None
    lines = {line.strip() for line in text.split("\n")}
    mark = next((mark for mark in _MARKS if mark not in lines), None)
    return None if mark is None else f"<<{mark}\n{_guarded(text)}{mark}"


def expression(value: Any, *, depth: int = 0) -> str:
    """Plain data as an expression of several lines; raises Inexpressible."""
    if isinstance(value, str):
        return string(value)
    if isinstance(value, Mapping):
        return _object(value, depth)
    if isinstance(value, (list, tuple)):
        return _tuple(list(value), depth)
    return scalar(value)


def scalar(value: Any) -> str:
    """A number, a bool or null as an expression."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value).replace("e+", "e")
    raise Inexpressible(f"{value!r} is not a value of the language")


def duration(nanoseconds: int) -> str:
    """An exact duration in Go's syntax: 90000000000 is "1m30s"."""
    if not -_INT64 < nanoseconds < _INT64:
        return str(nanoseconds)
    rest, parts = abs(nanoseconds), []
    for unit, size in _UNITS:
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    sign = "-" if nanoseconds < 0 else ""
    return f'"{sign}{"".join(parts) or "0s"}"'


def _object(value: Mapping[Any, Any], depth: int) -> str:
    if not value:
        return "{}"
    inner = "  " * (depth + 1)
    rows = [f"{inner}{_key(str(key))} = {expression(item, depth=depth + 1)}\n" for key, item in value.items()]
    return "{\n" + "".join(rows) + "  " * depth + "}"


def _tuple(items: list[Any], depth: int) -> str:
    if not any(isinstance(item, (Mapping, list, tuple)) for item in items):
        line = "[" + ", ".join(expression(item) for item in items) + "]"
        if len(line) <= 100:
            return line
    inner = "  " * (depth + 1)
    rows = [f"{inner}{expression(item, depth=depth + 1)},\n" for item in items]
    return "[\n" + "".join(rows) + "  " * depth + "]"


def _key(text: str) -> str:
    return text if is_identifier(text) and text not in _WORDS else string(text)


def _guarded(text: str) -> str:
    return _SEQUENCE.sub(lambda found: found[1] or found[2] * 2 + "{", text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _ESCAPES.get(char) or f"\\u{ord(char):04x}"
