"""Parses the variables of an `env = true` template: `NAME=value` lines in shell syntax."""

from __future__ import annotations

import re

from yurt.sdk.errors import Invalid

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def read_env(body: bytes) -> dict[str, str]:
    """The variables; raises Invalid with the line that is wrong."""
    found = {}
    for number, line in enumerate(body.decode("utf-8", "surrogateescape").splitlines(), start=1):
        entry = line.strip().removeprefix("export ").lstrip()
        if not entry or entry.startswith("#"):
            continue
        name, sign, rest = entry.partition("=")
        if not sign:
            raise Invalid(f"line {number}: NAME=value is needed, not {entry[:60]!r}")
        name = name.strip()
        if not _NAME.fullmatch(name):
            raise Invalid(f"line {number}: {name[:60]!r} cannot be the name of a variable")
        value = _value(rest.strip(), number)
        if "\0" in value:
            raise Invalid(f"line {number}: the value holds a NUL character")
        found[name] = value
    return found


def _value(text: str, number: int) -> str:
    """A value, plain or in quotes; a comment may follow after a space."""
    made, at = [], 0
    while at < len(text):
        character = text[at]
        if character == "#" and (at == 0 or text[at - 1].isspace()):
            break
        if character not in "'\"":
            made.append(character)
            at += 1
            continue
        end = _closing(text, at, number)
        inner = text[at + 1 : end]
        made.append(inner if character == "'" else _ESCAPE.sub(_unescaped, inner))
        at = end + 1
    joined = "".join(made)
    return joined if text.endswith(("'", '"')) else joined.rstrip()


def _closing(text: str, start: int, number: int) -> int:
    """The position of the closing quote for the quote at `start`."""
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 2
            continue
        if text[at] == quote:
            return at
        at += 1
    raise Invalid(f"line {number}: the quotes are not closed")


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPES.get(match[2], match[2])
