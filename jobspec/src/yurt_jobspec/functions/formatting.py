"""The `format` function: verbs of the printf kind.

%v is the value the way a template shows it (%#v as JSON), %t a bool, %d %b %o %x %X whole numbers, %e %f %g numbers,
%s text, %q quoted text. Flags are + - space 0 and #; width and precision may be given, and [n] picks an argument.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

from yurt_jobspec.numbers import to_text
from yurt_jobspec.values import ConversionError, Value, convert, is_null

from .registry import FunctionError

_VERB = re.compile(
    r"%(?P<flags>[-+ 0#]*)(?P<width>\d{1,9})?(?:\.(?P<precision>\d{1,9})?)?(?:\[(?P<index>\d{1,9})\])?(?P<verb>.)",
    re.DOTALL,
)
_MAX_WIDTH = 10_000
_MAX_LENGTH = 16 * 1024 * 1024


class _Spec(NamedTuple):
    flags: str
    width: int
    precision: int | None
    verb: str


def format_text(template: str, arguments: list[Value]) -> str:
    """The template with its verbs filled in. Raises FunctionError."""
    used: set[int] = set()
    position = length = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal position, length
        if found["verb"] == "%":
            return "%"
        index = int(found["index"]) - 1 if found["index"] else position
        position = index + 1
        if not 0 <= index < len(arguments):
            raise FunctionError(f"not enough arguments for {found[0]!r}: need {index + 1} but have {len(arguments)}", 0)
        used.add(index)
        dot = "." in found[0]
        spec = _Spec(
            found["flags"], int(found["width"] or 0), int(found["precision"] or 0) if dot else None, found["verb"]
        )
        if spec.width > _MAX_WIDTH or (spec.precision or 0) > _MAX_WIDTH:
            raise FunctionError(f"width and precision may be {_MAX_WIDTH} at most", 0)
        try:
            text = _pad(_one(spec, arguments[index], found[0]), spec)
        except ConversionError as error:
            raise FunctionError(f"unsupported value for {found[0]!r}: {error}", index + 1) from None
        length += len(text)
        if length > _MAX_LENGTH:
            raise FunctionError("the result is too long")
        return text

    if re.search(r"%[-+ 0#\d.\[\]]*\Z", template):
        raise FunctionError("the format string ends in the middle of a verb", 0)
    result = _VERB.sub(fill, template)
    if arguments and position < len(arguments) and len(used) < len(arguments):
        raise FunctionError(f"too many arguments; only {len(used)} used by format string", len(used) + 1)
    return result


def _one(spec: _Spec, value: Value, text: str) -> str:
    verb = spec.verb
    if verb == "v":
        return _default(spec, value)
    if verb not in "tbdoxXeEfFgGsq":
        raise FunctionError(f"unsupported format verb in {text!r}", 0)
    if is_null(value):
        raise ConversionError("null value cannot be formatted")
    if verb == "t":
        return str(convert(convert(value, "bool"), "string"))
    if verb in "sq":
        return _string(spec, convert(value, "string"))
    number = convert(value, "number")
    if verb in "eEfFgG":
        return _signed(spec, _float(spec, Decimal(number)))
    whole = int(number)
    digits = {"b": "b", "d": "d", "o": "o", "x": "x", "X": "X"}[verb]
    prefix = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}.get(verb, "") if "#" in spec.flags else ""
    return _signed(spec, ("-" if whole < 0 else "") + prefix + format(abs(whole), digits))


def _default(spec: _Spec, value: Value) -> str:
    from .encoding import json_text

    if "#" in spec.flags:
        return json_text(value)
    if is_null(value):
        return "null"
    if type(value) in (int, Decimal):
        return _signed(spec, to_text(value))
    try:
        return _string(spec, convert(value, "string"))
    except ConversionError:
        return json_text(value)


def _string(spec: _Spec, text: str) -> str:
    from .encoding import json_text

    text = text if spec.precision is None else text[: spec.precision]
    return json_text(text) if spec.verb == "q" else text


def _float(spec: _Spec, number: Decimal) -> str:
    verb, precision = spec.verb, spec.precision
    if verb in "fF":
        places = 6 if precision is None else precision
        return format(number, f".{places}f")
    if verb in "eE":
        return _exponent(format(number, f".{6 if precision is None else precision}{verb}"))
    if precision is not None:
        return _exponent(format(float(number), f".{precision}{verb}"))
    exponent = number.adjusted() if number else 0
    if -5 < exponent < 21:
        return to_text(int(number) if number == int(number) else number)
    return _exponent(format(number.normalize(), "e" if verb == "g" else "E"))


def _exponent(text: str) -> str:
    """At least two digits of exponent, with a sign."""
    return re.sub(r"([eE])([+-]?)(\d)\Z", lambda found: f"{found[1]}{found[2] or '+'}0{found[3]}", text)


def _signed(spec: _Spec, text: str) -> str:
    if not text.startswith("-"):
        text = ("+" if "+" in spec.flags else " " if " " in spec.flags else "") + text
    if "0" in spec.flags and "-" not in spec.flags:
        sign = text[0] if text[:1] in ("+", "-", " ") else ""
        text = sign + text[len(sign) :].rjust(spec.width - len(sign), "0")
    return text


def _pad(text: Any, spec: _Spec) -> str:
    return str(text).ljust(spec.width) if "-" in spec.flags else str(text).rjust(spec.width)
