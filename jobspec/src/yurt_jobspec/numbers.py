"""Numbers with the precision of 512-bit binary floating point, as decimals.

The language computes with binary floats of 512 bits of precision and prints the shortest decimal that reads back as
the same float. That decimal identifies the float, so it is what we keep: whole numbers as int, everything else as
Decimal. An operation on ints that stays below 2**512 is exact and costs nothing extra. Any other operation goes
through fractions: each operand is rounded to its float, the exact result is rounded once to 512 bits (half to even),
and the shortest decimal is taken again.
"""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction

Number = int | Decimal

PRECISION_BITS = 512
MAX_EXPONENT = 1_000
"""Numbers beyond 10**1000 are refused: writing them out would take more room than any job needs."""

_EXACT = 1 << PRECISION_BITS
_SAFE_DIGITS = 154
_MAX_BITS = MAX_EXPONENT * 4
_WIDE = Context(prec=MAX_EXPONENT * 2, Emax=MAX_EXPONENT * 4, Emin=-MAX_EXPONENT * 4)
NEGATIVE_ZERO = Decimal("-0")


def parse_number(text: str) -> Number:
    """A number from its text; raises ValueError for an invalid or too large one."""
    if text.isdecimal() and text.isascii() and len(text) <= _SAFE_DIGITS:
        return int(text)
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f'"{text}" is not a number.') from None
    return from_decimal(value)


def from_decimal(value: Decimal) -> Number:
    """The number with a decimal's value."""
    if not value.is_finite():
        raise ValueError("A number must be finite.")
    if value and abs(value.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"Numbers beyond 10 to the power of {MAX_EXPONENT} are not supported.")
    if not value:
        return NEGATIVE_ZERO if value.is_signed() else 0
    if len(value.as_tuple().digits) > _SAFE_DIGITS:
        return from_fraction(Fraction(value))
    if value == value.to_integral_value(context=_WIDE):
        return int(value)
    return value.normalize(_WIDE)


def from_fraction(value: Fraction) -> Number:
    """The shortest decimal for the 512-bit float nearest to an exact value."""
    if value.denominator == 1 and -_EXACT < value.numerator < _EXACT:
        return value.numerator
    if abs(value.numerator.bit_length() - value.denominator.bit_length()) > _MAX_BITS:
        raise ValueError(f"Numbers beyond 10 to the power of {MAX_EXPONENT} are not supported.")
    mantissa, exponent = _round(abs(value))
    result = _shortest(mantissa, exponent)
    if result.adjusted() > MAX_EXPONENT:
        raise ValueError(f"Numbers beyond 10 to the power of {MAX_EXPONENT} are not supported.")
    if value < 0:
        result = result.copy_negate()
    return int(result) if result == result.to_integral_value(context=_WIDE) else result


def to_fraction(value: Number) -> Fraction:
    """The exact value of the 512-bit float that a number represents."""
    if isinstance(value, int) and -_EXACT < value < _EXACT:
        return Fraction(value)
    exact = Fraction(value)
    if not exact:
        return exact
    mantissa, exponent = _round(abs(exact))
    rounded = Fraction(mantissa * 2**exponent) if exponent >= 0 else Fraction(mantissa, 2**-exponent)
    return -rounded if exact < 0 else rounded


def _round(value: Fraction) -> tuple[int, int]:
    """(mantissa, exponent) of the nearest float; the mantissa has exactly 512 bits."""
    shift = value.numerator.bit_length() - value.denominator.bit_length() - PRECISION_BITS
    while True:
        top, bottom = (
            (value.numerator, value.denominator << shift)
            if shift >= 0
            else (value.numerator << -shift, value.denominator)
        )
        mantissa, rest = divmod(top, bottom)
        if mantissa.bit_length() > PRECISION_BITS:
            shift += 1
        elif mantissa.bit_length() < PRECISION_BITS:
            shift -= 1
        else:
            break
    if 2 * rest > bottom or (2 * rest == bottom and mantissa & 1):
        mantissa += 1
    return (mantissa, shift) if mantissa.bit_length() == PRECISION_BITS else (mantissa >> 1, shift + 1)


def _shortest(mantissa: int, exponent: int) -> Decimal:
    """The decimal with the fewest digits that lies nearer to this float than to its neighbours."""
    low = Fraction(2 * mantissa - 1, 2) if mantissa != 1 << (PRECISION_BITS - 1) else Fraction(4 * mantissa - 1, 4)
    scale = Fraction(2) ** exponent
    value, low, high = mantissa * scale, low * scale, Fraction(2 * mantissa + 1, 2) * scale
    magnitude = len(str(value.numerator)) - len(str(value.denominator))
    closed = mantissa % 2 == 0
    fewest, most = 1, _SAFE_DIGITS + 4
    while fewest < most:
        digits = (fewest + most) // 2
        if _candidate(value, low, high, closed, magnitude, digits) is None:
            fewest = digits + 1
        else:
            most = digits
    found = _candidate(value, low, high, closed, magnitude, fewest)
    assert found is not None
    return found


def _candidate(
    value: Fraction, low: Fraction, high: Fraction, closed: bool, magnitude: int, digits: int
) -> Decimal | None:
    """The decimal with this number of digits nearest to the value, if it is within the float's interval."""
    place = magnitude - digits
    unit = Fraction(10) ** place
    down = value // unit
    best: Decimal | None = None
    choices = sorted((down, down + 1), key=lambda count: abs(count * unit - value))
    for count in choices:
        candidate = count * unit
        if low < candidate < high or (closed and candidate in (low, high)):
            best = Decimal(count).scaleb(place, _WIDE).normalize(_WIDE)
            break
    return best


def to_text(value: Number) -> str:
    """The digits without an exponent, as in string interpolation."""
    return str(value) if isinstance(value, int) else format(value, "f")


def add(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return _bounded(left + right)
    return from_fraction(to_fraction(left) + to_fraction(right))


def subtract(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return _bounded(left - right)
    return from_fraction(to_fraction(left) - to_fraction(right))


def multiply(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return _bounded(left * right)
    return from_fraction(to_fraction(left) * to_fraction(right))


def divide(left: Number, right: Number) -> Number:
    """The quotient; raises ZeroDivisionError."""
    if isinstance(left, int) and isinstance(right, int) and right and left % right == 0:
        return left // right
    return from_fraction(to_fraction(left) / to_fraction(right))


def remainder(left: Number, right: Number) -> Number:
    """The remainder of a truncating division; raises ZeroDivisionError."""
    dividend, divisor = to_fraction(left), to_fraction(right)
    quotient = dividend / divisor
    whole = abs(quotient.numerator) // quotient.denominator
    return from_fraction(dividend - (whole if quotient >= 0 else -whole) * divisor)


def negate(value: Number) -> Number:
    if not value:
        return 0 if isinstance(value, Decimal) and value.is_signed() else NEGATIVE_ZERO
    return -value if isinstance(value, int) else value.copy_negate()


def power(base: Number, exponent: Number) -> Number:
    """base ** exponent; exact for integer exponents, otherwise in double precision."""
    if isinstance(exponent, int) and abs(exponent) <= MAX_EXPONENT:
        if not base and exponent < 0:
            raise ZeroDivisionError
        if abs(exponent) * abs(Decimal(base).adjusted() if base else 0) > MAX_EXPONENT:
            raise ValueError("the power is too large")
        return from_fraction(to_fraction(base) ** exponent)
    return from_float(float(base) ** float(exponent))


def from_float(value: float) -> Number:
    """A number from a double."""
    return from_decimal(Decimal(repr(value)))


def _bounded(value: int) -> Number:
    return value if -_EXACT < value < _EXACT else from_fraction(Fraction(value))
