"""Functions on numbers."""

from __future__ import annotations

import math
from fractions import Fraction

from yurt_jobspec.numbers import Number, from_float, negate, power
from yurt_jobspec.values import type_name, type_of

from .registry import Arguments, FunctionError


def abs(args: Arguments) -> Number:
    value: Number = args[0]
    return negate(value) if value < 0 else value


def ceil(args: Arguments) -> int:
    return math.ceil(Fraction(args[0]))


def floor(args: Arguments) -> int:
    return math.floor(Fraction(args[0]))


def log(args: Arguments) -> Number:
    number, base = float(args[0]), float(args[1])
    if number <= 0 or base <= 0 or base == 1:
        raise FunctionError("the logarithm is not defined for these numbers")
    return from_float(math.log(number) / math.log(base))


def max(args: Arguments) -> Number:
    if not args:
        raise FunctionError("must pass at least one number")
    largest: Number = sorted(args)[-1]
    return largest


def min(args: Arguments) -> Number:
    if not args:
        raise FunctionError("must pass at least one number")
    smallest: Number = sorted(args)[0]
    return smallest


def parseint(args: Arguments) -> int:
    text, base = args
    if not isinstance(text, str):
        raise FunctionError(f"the first argument must be a string, not {type_name(type_of(text))}", 0)
    if not isinstance(base, int) or not 2 <= base <= 62:
        raise FunctionError("base must be a whole number between 2 and 62 inclusive", 1)
    if len(text) > 1000:
        raise FunctionError("the text is too long", 0)
    digits = text.removeprefix("-").removeprefix("+")
    value = 0
    for char in digits:
        digit = _digit(char, base)
        if digit is None:
            break
        value = value * base + digit
    else:
        if digits:
            return -value if text.startswith("-") else value
    raise FunctionError(f'cannot parse "{text}" as a base {base} integer', 0)


def _digit(char: str, base: int) -> int | None:
    """The value of a digit: 0-9, a-z, then A-Z in bases above 36."""
    if not char.isascii() or not char.isalnum():
        return None
    if char.isdecimal():
        value = int(char)
    elif char.islower() or base <= 36:
        value = ord(char.lower()) - ord("a") + 10
    else:
        value = ord(char) - ord("A") + 36
    return value if value < base else None


def pow(args: Arguments) -> Number:
    try:
        return power(args[0], args[1])
    except (OverflowError, ZeroDivisionError, ValueError, TypeError):
        raise FunctionError("the power is not defined or too large") from None


def signum(args: Arguments) -> int:
    value: Number = args[0]
    if not isinstance(value, int):
        raise FunctionError("a whole number is required")
    return int(value > 0) - int(value < 0)
