"""Go's `printf`: verbs, flags, widths and precisions, with Go's texts for what does not fit (`%!d(string=a)`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from yurt.gotemplate.errors import EvaluationFailure
from yurt.gotemplate.values import MISSING, PRINT_DEPTH_MAX, float_text, kind_of, sorted_items, text_of

SIZE_MAX = 1_000_000
"""The widest field and the largest precision, as in Go."""

_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<at_width>\[[^\]]*\])?(?P<width>\*|\d+)?"
    r"(?:\.(?P<at_precision>\[[^\]]*\])?(?P<precision>\*|\d*))?(?P<at>\[[^\]]*\])?(?P<verb>.)?",
    re.DOTALL,
)
_TYPES = {"slice": "[]interface {}", "map": "map[string]interface {}", "nil": "<nil>"}
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_DIGITS = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}


class _Shape(NamedTuple):
    """How one verb is to be written."""

    verb: str
    flags: str
    width: int = 0
    precision: int | None = None


class _Arguments:
    """The arguments of one call, taken in turn or by number."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values
        self.next = 0
        self.is_reordered = False
        self.is_good = True

    def jump(self, number: str | None) -> None:
        """Go on at the argument that `[n]` names."""
        if number is None:
            return
        self.is_reordered = True
        digits = number[1:-1]
        self.is_good = digits.isdecimal() and len(digits) < 8 and 1 <= int(digits) <= len(self.values)
        if self.is_good:
            self.next = int(digits) - 1

    def take(self) -> object:
        """The next argument; MISSING when there is none."""
        self.next += 1
        return self.values[self.next - 1] if self.next <= len(self.values) else MISSING


def sprintf(form: str, *values: object, size_max: int = 1 << 24) -> str:
    """The values written as the form says; raises Failure above `size_max` characters."""
    arguments, pieces, at, size = _Arguments(values), [], 0, 0
    for match in _VERB.finditer(form):
        if match.start() < at:
            continue
        pieces += [form[at : match.start()], _one(match, arguments)]
        size += len(pieces[-1]) + len(pieces[-2])
        if size > size_max:
            raise EvaluationFailure(f"the text is longer than {size_max} characters")
        at = match.end()
    pieces.append(form[at:])
    if not arguments.is_reordered and arguments.next < len(values):
        extra = ", ".join(
            f"{go_type(value)}={text_of(value)}" if value is not None else "<nil>" for value in values[arguments.next :]
        )
        pieces.append(f"%!(EXTRA {extra})")
    return "".join(pieces)


def go_type(value: object) -> str:
    """Go's `%T`."""
    kind = kind_of(value)
    return _TYPES.get(kind, kind)


def _one(match: re.Match[str], arguments: _Arguments) -> str:
    verb, flags = match["verb"], match["flags"]
    if verb is None:
        return "%!(NOVERB)"
    trouble = ""
    arguments.is_good = True
    arguments.jump(match["at_width"])
    width = _size(match["width"], arguments)
    if width is None:
        width, trouble = 0, "%!(BADWIDTH)"
    if width < 0:
        width, flags = -width, flags + "-"
    arguments.jump(match["at_precision"])
    precision = _size(match["precision"] or "0", arguments) if match["precision"] is not None else -1
    if precision is None or (precision < 0 and match["precision"] is not None):
        precision, trouble = -1, trouble + "%!(BADPREC)"
    arguments.jump(match["at"])
    if verb == "%":
        return trouble + "%"
    if not arguments.is_good:
        return f"{trouble}%!{verb}(BADINDEX)"
    if arguments.next >= len(arguments.values):
        return f"{trouble}%!{verb}(MISSING)"
    flags = flags.replace("+", "") if verb == "v" else flags
    shape = _Shape(verb, flags, width, None if precision < 0 else precision)
    return trouble + _formatted(shape, arguments.take())


def _size(text: str | None, arguments: _Arguments) -> int | None:
    """A width or precision; None for one that is none."""
    if text is None:
        return 0
    if text != "*":
        return int(text) if len(text) < 8 and int(text) <= SIZE_MAX else None
    value = arguments.take()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= SIZE_MAX:
        return value
    return None


def _formatted(shape: _Shape, value: object) -> str:
    if shape.verb == "T":
        return _padded(shape, go_type(value))
    if value is None:
        return _padded(shape, "<nil>") if shape.verb == "v" else f"%!{shape.verb}(<nil>)"
    return _value(shape, value, 0)


def _value(shape: _Shape, value: object, depth: int) -> str:
    if depth > PRINT_DEPTH_MAX:
        raise EvaluationFailure(f"the value is nested deeper than {PRINT_DEPTH_MAX}")
    match value:
        case None:
            return _padded(shape, "interface {}(nil)" if _is_sharp_v(shape) else "<nil>")
        case bool():
            return _padded(shape, str(value).lower()) if shape.verb in "tv" else _bad(shape, value)
        case int():
            return _whole(shape, value)
        case float():
            return _float(shape, value)
        case str():
            return _text(shape, value, value.encode("utf-8", "surrogatepass"))
        case bytes() if shape.verb in "sqxX":
            return _text(shape, value.decode("utf-8", "replace"), value)
        case Mapping():
            return _mapping(shape, value, depth)
        case bytes() | list() | tuple():
            pieces = [_value(shape, each, depth + 1) for each in value]
            return f"[]interface {{}}{{{', '.join(pieces)}}}" if _is_sharp_v(shape) else f"[{' '.join(pieces)}]"
    return _padded(shape, str(value)) if shape.verb in "vs" else _bad(shape, value)


def _mapping(shape: _Shape, value: Mapping[Any, Any], depth: int) -> str:
    pieces = [f"{_value(shape, key, depth + 1)}:{_value(shape, each, depth + 1)}" for key, each in sorted_items(value)]
    return f"map[string]interface {{}}{{{', '.join(pieces)}}}" if _is_sharp_v(shape) else f"map[{' '.join(pieces)}]"


def _is_sharp_v(shape: _Shape) -> bool:
    return shape.verb == "v" and "#" in shape.flags


def _bad(shape: _Shape, value: object) -> str:
    return f"%!{shape.verb}({go_type(value)}={text_of(value)})"


def _padded(shape: _Shape, text: str) -> str:
    if "-" in shape.flags:
        return text.ljust(shape.width)
    return text.rjust(shape.width, "0" if "0" in shape.flags else " ")


def _signed(shape: _Shape, sign: str, digits: str) -> str:
    """A number with its sign, padded; zeros go between sign and digits."""
    sign = sign or ("+" if "+" in shape.flags else " " if " " in shape.flags else "")
    if "0" in shape.flags and "-" not in shape.flags and shape.precision is None:
        digits = digits.rjust(shape.width - len(sign), "0")
    text = sign + digits
    return text.ljust(shape.width) if "-" in shape.flags else text.rjust(shape.width)


def _whole(shape: _Shape, value: int) -> str:
    verb = shape.verb
    if verb in _DIGITS:
        digits = format(abs(value), _DIGITS[verb])
        if shape.precision is not None:
            digits = "" if shape.precision == 0 and value == 0 else digits.rjust(shape.precision, "0")
        prefix = "0o" if verb == "O" else _PREFIXES.get(verb, "") if "#" in shape.flags else ""
        return _signed(shape, "-" if value < 0 else "", prefix + digits)
    if verb in "cq":
        character = chr(value) if 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000 else "\ufffd"
        return _padded(shape, character if verb == "c" else _quoted(character, "'", is_ascii="+" in shape.flags))
    if verb == "U":
        shown = f" '{chr(value)}'" if "#" in shape.flags and 0 <= value <= 0x10FFFF else ""
        return _padded(shape, f"U+{value:04X}{shown}")
    return _bad(shape, value)


def _float(shape: _Shape, value: float) -> str:
    verb, precision = shape.verb, shape.precision
    if verb not in "veEfFgG":
        return _bad(shape, value)
    if verb == "v" or (verb in "gG" and precision is None):
        text = float_text(value) if precision is None else format(value, f".{precision or 1}g")
    else:
        digits = 6 if precision is None else precision
        text = format(value, f".{digits}{verb.lower()}")
        text = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, text)
    if verb in "EG":
        text = text.replace("e", "E")
    sign, digits_text = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    if digits_text in ("Inf", "NaN"):
        return _padded(_Shape(verb, shape.flags.replace("0", ""), shape.width), text)
    return _signed(shape._replace(precision=None), sign, digits_text)


def _text(shape: _Shape, value: str, raw: bytes) -> str:
    if shape.verb in "xX":
        raw = raw if shape.precision is None else raw[: shape.precision]
        separator, prefix = " " if " " in shape.flags else "", "0x" if "#" in shape.flags and raw else ""
        if separator and prefix:
            separator = " 0x"
        digits = prefix + separator.join(f"{byte:02x}" for byte in raw)
        return _padded(shape, digits.upper() if shape.verb == "X" else digits)
    if shape.precision is not None:
        value = value[: shape.precision]
    if _is_sharp_v(shape):
        return _padded(shape, _quoted(value, '"'))
    if shape.verb in "vs":
        return _padded(shape, value)
    if shape.verb == "q":
        if "#" in shape.flags and "`" not in value and all(c.isprintable() or c == "\t" for c in value):
            return _padded(shape, f"`{value}`")
        return _padded(shape, _quoted(value, '"', is_ascii="+" in shape.flags))
    return _bad(shape, value)


def _quoted(text: str, quote: str, *, is_ascii: bool = False) -> str:
    pieces = []
    for character in text:
        point = ord(character)
        if character == quote:
            pieces.append("\\" + quote)
        elif character in _ESCAPES:
            pieces.append(_ESCAPES[character])
        elif character.isprintable() and (point < 0x80 or not is_ascii):
            pieces.append(character)
        elif point < 0x80:
            pieces.append(f"\\x{point:02x}")
        else:
            pieces.append(f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}")
    return quote + "".join(pieces) + quote
