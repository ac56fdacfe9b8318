"""Go's literals: quoted texts with their escapes, characters, numbers."""

from __future__ import annotations

import re

from yurt.gotemplate.errors import EvaluationFailure

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_UNICODE_MAX = 0x10FFFF
_BITS_MAX = 1 << 64


def unquoted(text: str) -> str:
    """The value of a literal in double or single quotes."""
    quote, body = text[0], text[1:-1]
    if "\\" not in body:
        return body
    pieces, at = bytearray(), 0
    for match in _ESCAPE.finditer(body):
        pieces += body[at : match.start()].encode("utf-8", "surrogatepass")
        pieces += _escaped(match.group(1), quote)
        at = match.end()
    pieces += body[at:].encode("utf-8", "surrogatepass")
    return pieces.decode("utf-8", "replace")


def _escaped(code: str, quote: str) -> bytes:
    if code == quote:
        return quote.encode()
    if code in _PLAIN:
        return _PLAIN[code].encode()
    if code[0] in "uU" and len(code) > 1:
        point = int(code[1:], 16)
        if point > _UNICODE_MAX or 0xD800 <= point < 0xE000:
            raise EvaluationFailure(f"\\{code} is not a character")
        return chr(point).encode()
    if code[0] == "x" and len(code) == 3:
        return bytes([int(code[1:], 16)])
    if len(code) == 3 and int(code, 8) < 256:
        return bytes([int(code, 8)])
    raise EvaluationFailure(f"unknown escape sequence \\{code}")


def character(text: str) -> int:
    """The code point of a character constant."""
    value = unquoted(text)
    if len(value) != 1:
        raise EvaluationFailure(f"malformed character constant: {text}")
    return ord(value)


def number(text: str) -> int | float:
    """The value of a number; whole when it is written so."""
    digits = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    plain = digits.replace("_", "")
    try:
        if plain[:2].lower() in ("0x", "0b", "0o"):
            value: int | float = int(plain, 0)
        elif not plain.isdigit():
            return sign * float(plain)
        else:
            value = int(plain, 8) if len(plain) > 1 and plain[0] == "0" else int(plain)
    except ValueError:
        raise EvaluationFailure(f'bad number syntax: "{text}"') from None
    if value >= _BITS_MAX:
        raise EvaluationFailure(f"integer overflow: {text}")
    return sign * value
