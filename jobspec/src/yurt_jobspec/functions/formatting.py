"""The `format` function, with the verbs of printf.

%v is the value the way a template shows it (numbers as %g does, %#v as JSON), %t a bool, %d %b %o %x %X whole
numbers, %e %E %f %g %G numbers, %s text, %q quoted text. Flags are + - space 0 and #, then width and precision, then
[n] to pick an argument. A verb has no other kind of argument than its own, after the conversions of the language.

Numbers are rounded from their exact value of 512 bits, half to even, and not from the decimal that was written.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, NamedTuple

from yurt_jobspec.diagnostics import characters
from yurt_jobspec.numbers import NEGATIVE_ZERO, Number, to_fraction, to_text
from yurt_jobspec.values import ConversionError, Value, convert, is_null, type_name, type_of

from .registry import FunctionError

_VERB = re.compile(
    r"%(?:(?P<percent>%)|(?P<flags>[-+ 0#]*)(?P<width>[1-9]\d{0,8})?(?:\.(?P<precision>\d{0,9}))?"
    r"(?:\[(?P<index>\d{1,9})\])?(?P<verb>[A-Za-z])?)"
)
_MAX_WIDTH = 10_000
_MAX_LENGTH = 16 * 1024 * 1024
_EXACT: Final = Context(prec=20_000, rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6))
"""Holds every number exactly: a float of 512 bits beyond 10**-1000 has fewer than 4,500 digits."""
_SHORTEST_EXPONENTS: Final = range(-4, 6)
"""Powers of ten that %g and %v write without an exponent when no precision is given."""


class _Spec(NamedTuple):
    flags: str
    width: int
    precision: int | None
    verb: str


def format_text(template: str, arguments: list[Value]) -> str:
    """The template with its verbs replaced; raises FunctionError."""
    used: set[int] = set()
    position = length = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal position, length
        if found["percent"]:
            return "%"
        spec = _spec(template, found)
        index = int(found["index"]) - 1 if found["index"] else position
        position = index + 1
        if not 0 <= index < len(arguments):
            raise FunctionError(f'not enough arguments for "{found[0]}": need {index + 1} but have {len(arguments)}')
        used.add(index)
        try:
            text = _one(spec, arguments[index])
        except ConversionError as error:
            raise FunctionError(f'value {index + 1} is not fit for "{found[0]}": {error}') from None
        length += len(text)
        if length > _MAX_LENGTH:
            raise FunctionError("the result is too long")
        return text

    result = _VERB.sub(fill, template)
    if arguments and position < len(arguments) and len(used) < len(arguments):
        verbs = f"only {len(used)} used by the format string" if used else "no verbs in the format string"
        raise FunctionError(f"too many arguments; {verbs}", len(used) + 1)
    return result


def _spec(template: str, found: re.Match[str]) -> _Spec:
    """The flags, width and precision between the percent sign and the verb."""
    if not found["verb"]:
        if found.end() == len(template):
            raise FunctionError('the format string ends in the middle of a verb; "%%" writes a percent sign')
        raise FunctionError(f"unexpected character {template[found.end()]!r} in the verb {found[0]!r}")
    if found["verb"] not in _VERBS:
        raise FunctionError(f'unsupported format verb "{found["verb"]}" in "{found[0]}"; verbs are {" ".join(_VERBS)}')
    precision = found["precision"]
    spec = _Spec(
        found["flags"], int(found["width"] or 0), None if precision is None else int(precision or 0), found["verb"]
    )
    if spec.width > _MAX_WIDTH or (spec.precision or 0) > _MAX_WIDTH:
        raise FunctionError(f"width and precision may be {_MAX_WIDTH} at most")
    return spec


_VERBS = "vtbdoxXeEfgGsq"


def _one(spec: _Spec, value: Value) -> str:
    if spec.verb == "v":
        return _pad_text(spec, _default(spec, value))
    if is_null(value):
        raise ConversionError("null value cannot be formatted")
    if spec.verb == "t":
        return str(convert(_converted(value, "bool"), "string"))
    if spec.verb in "sq":
        return _pad_text(spec, _string(spec, str(_converted(value, "string"))))
    number: Number = _converted(value, "number")
    if spec.verb in "eEfgG":
        return _pad_number(spec, *_float(spec, number))
    if not isinstance(number, int) and number != 0:
        raise ConversionError("an integer is required")
    return _integer(spec, int(number))


def _converted(value: Value, kind: str) -> Value:
    try:
        return convert(value, kind)
    except ConversionError as error:
        if isinstance(value, str):
            raise
        raise ConversionError(f"{error}, but have {type_name(type_of(value))}") from None


def _default(spec: _Spec, value: Value) -> str:
    from .encoding import json_text

    if "#" in spec.flags or is_null(value):
        return json_text(value)
    if type(value) in (int, Decimal):
        sign, text = _general(value, None)
        return sign + text
    try:
        return str(convert(value, "string"))
    except ConversionError:
        return json_text(value)


def _string(spec: _Spec, text: str) -> str:
    from .encoding import json_text

    text = text if spec.precision is None else "".join(characters(text)[: spec.precision])
    return json_text(text) if spec.verb == "q" else text


# Numbers: a sign and what follows it.


def _float(spec: _Spec, number: Number) -> tuple[str, str]:
    if spec.verb in "gG":
        sign, text = _general(number, spec.precision)
    else:
        sign, exact = _parts(number)
        places = 6 if spec.precision is None else spec.precision
        text = _fixed(exact, places) if spec.verb == "f" else _scientific(exact, places)
    return sign, text.upper() if spec.verb in "EG" else text


def _parts(number: Number) -> tuple[str, Decimal]:
    """The sign and the exact magnitude of a number."""
    exact = to_fraction(number)
    sign = "-" if exact < 0 or (number == 0 and str(number) == str(NEGATIVE_ZERO)) else ""
    return sign, _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator)).copy_abs()


def _fixed(exact: Decimal, places: int) -> str:
    return f"{exact.quantize(Decimal(1).scaleb(-places), context=_EXACT):f}"


def _scientific(exact: Decimal, places: int) -> str:
    """One digit, `places` more digits, and a signed exponent of at least two digits."""
    if not exact:
        digits, exponent = "0" * (places + 1), 0
    else:
        rounded = Context(prec=places + 1, rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6)).plus(exact)
        digits = "".join(map(str, rounded.as_tuple().digits)).ljust(places + 1, "0")
        exponent = rounded.adjusted()
    tail = f".{digits[1:]}" if places else ""
    return f"{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _general(number: Number, precision: int | None) -> tuple[str, str]:
    """The verb %g: the shorter of both forms, without trailing zeros."""
    sign, exact = _parts(number)
    if precision is None:
        shown = Decimal(to_text(number)).copy_abs()
    else:
        shown = Context(prec=max(precision, 1), rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6)).plus(exact)
    shown = shown.normalize(_EXACT)
    exponents = _SHORTEST_EXPONENTS if precision is None else range(-4, max(precision, 1))
    if not shown or shown.adjusted() in exponents:
        return sign, f"{shown:f}"
    return sign, _scientific(shown, len(shown.as_tuple().digits) - 1)


def _integer(spec: _Spec, whole: int) -> str:
    digits = format(abs(whole), spec.verb)
    if spec.precision is not None:
        if spec.precision == 0 and whole == 0:
            return ""
        digits = digits.rjust(spec.precision, "0")
    prefix = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}.get(spec.verb, "") if "#" in spec.flags else ""
    sign = _sign(spec, "-" if whole < 0 else "") + prefix
    if "0" in spec.flags and "-" not in spec.flags and spec.precision is None:
        digits = digits.rjust(spec.width - len(sign), "0")
    text = sign + digits
    return text.ljust(spec.width) if "-" in spec.flags else text.rjust(spec.width)


def _sign(spec: _Spec, sign: str) -> str:
    return sign or ("+" if "+" in spec.flags else " " if " " in spec.flags else "")


def _pad_number(spec: _Spec, sign: str, text: str) -> str:
    """The padded number; zeros go between sign and digits, and "-" overrides them."""
    sign = _sign(spec, sign)
    if "0" in spec.flags:
        return sign + text.rjust(spec.width - len(sign), "0")
    text = sign + text
    return text.ljust(spec.width) if "-" in spec.flags else text.rjust(spec.width)


def _pad_text(spec: _Spec, text: str) -> str:
    missing = spec.width - len(characters(text)) if spec.width else 0
    if "-" in spec.flags:
        return text + " " * missing
    return ("0" if "0" in spec.flags else " ") * missing + text
