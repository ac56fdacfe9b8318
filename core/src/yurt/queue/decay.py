"""Decaying usage: past usage counts half as much after every half-life.

With the rate of use r(s) and the half-life h, usage at t is the integral of r(s) 2^(-(t-s)/h) over all s before t. A
row keeps that integral *inflated to a landmark* L, that is without the common factor 2^(-(t-L)/h):

    total += rate * (G(t2) - G(t1)),    G(t) = h/ln 2 * 2^((t-L)/h)

The sum telescopes: any division of an interval gives the same total, to the bit, and nothing has to visit rows that do
not change. A landmark moves by whole half-lives only, which is a shift.

All arithmetic is on integers, powers of two come from a table: replicas on different processors and C libraries agree
on every bit. A clock that jumps back moves nothing: a row's time never falls. Times are nanoseconds, rates any integer
unit; usage is in rate units times nanoseconds.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, NamedTuple

SCALE_BITS: Final = 64
"""`power_of_two` gives 2^x times 2^SCALE_BITS."""
_TABLE_BITS: Final = 12
_FRACTION_BITS: Final = 32
LANDMARK_SPAN: Final = 32
"""The age in half-lives at which a landmark moves, which bounds the size of the totals."""
_LOG2_E: Final = 26_613_026_195_688_644_983
"""1/ln 2 times 2^SCALE_BITS."""


def _table() -> tuple[int, ...]:
    """2^(i/4096) for i from 0 to 4096, times 2^SCALE_BITS; by square roots of integers."""
    precision = 4 * SCALE_BITS
    root = 2 << precision
    for _ in range(_TABLE_BITS):
        root = isqrt(root << precision)
    values, value = [], 1 << precision
    for _ in range(1 << _TABLE_BITS):
        values.append(value >> (precision - SCALE_BITS))
        value = value * root >> precision
    return (*values, 2 << SCALE_BITS)


_POWERS: Final = _table()


def power_of_two(numerator: int, denominator: int) -> int:
    """2^(numerator/denominator) times 2^SCALE_BITS; never falls when the numerator rises."""
    whole, rest = divmod(numerator, denominator)
    position = (rest << _FRACTION_BITS) // denominator
    step = _FRACTION_BITS - _TABLE_BITS
    index, part = position >> step, position & ((1 << step) - 1)
    value = _POWERS[index] + ((_POWERS[index + 1] - _POWERS[index]) * part >> step)
    return value << whole if whole >= 0 else value >> -whole


def lifetime(half_life: int) -> int:
    """h/ln 2: the usage of a constant rate converges to the rate times this."""
    return half_life * _LOG2_E >> SCALE_BITS


class DecayedUsage(NamedTuple):
    """Decayed usage of some resources, each with its present rate of use."""

    landmark: int
    at: int
    totals: tuple[int, ...]
    """The usage by resource, inflated to the landmark, without the usage by the rates since `at`."""
    rates: tuple[int, ...]


def no_usage(resources: int, *, now: int) -> DecayedUsage:
    """A usage without any totals or rates."""
    return DecayedUsage(now, now, (0,) * resources, (0,) * resources)


def advanced(usage: DecayedUsage, now: int, half_life: int) -> DecayedUsage:
    """The same usage with `at` moved to `now`; unchanged when the clock went back."""
    assert half_life > 0, half_life
    if now <= usage.at:
        return usage
    usage = _near(usage, now, half_life)
    growth = _primitive(usage, now, half_life) - _primitive(usage, usage.at, half_life)
    assert growth >= 0, (usage.at, now, "usage never falls but by decay")
    totals = tuple(total + rate * growth for total, rate in zip(usage.totals, usage.rates, strict=True))
    return usage._replace(at=now, totals=totals)


def with_rates(usage: DecayedUsage, rates: tuple[int, ...], *, now: int, half_life: int) -> DecayedUsage:
    """The usage when the rates change at `now`."""
    assert len(rates) == len(usage.rates), (rates, usage.rates)
    assert min(rates) >= 0, (rates, "nobody gives back more than was taken")
    return advanced(usage, now, half_life)._replace(rates=rates)


def used(usage: DecayedUsage, now: int, half_life: int) -> tuple[int, ...]:
    """The decayed usage at `now`, by resource, in rate units times nanoseconds."""
    current = advanced(usage, now, half_life)
    factor = power_of_two(current.at - current.landmark, half_life)
    return tuple((total << SCALE_BITS) // factor for total in current.totals)


def rebased(usage: DecayedUsage, now: int, *, before: int, after: int) -> DecayedUsage:
    """The usage under another half-life: the value at `now` is kept and decays at the new rate from there."""
    if before == after:
        return usage
    current = advanced(usage, now, before)
    return DecayedUsage(current.at, current.at, used(current, current.at, before), usage.rates)


def _primitive(usage: DecayedUsage, at: int, half_life: int) -> int:
    """G(at), in nanoseconds."""
    inflation = power_of_two(at - usage.landmark, half_life)
    return half_life * _LOG2_E * inflation >> (2 * SCALE_BITS)


def _near(usage: DecayedUsage, now: int, half_life: int) -> DecayedUsage:
    """The usage with a landmark that is not too long before `now`."""
    age = (now - usage.landmark) // half_life
    if age < LANDMARK_SPAN:
        return usage
    return usage._replace(
        landmark=usage.landmark + age * half_life, totals=tuple(total >> age for total in usage.totals)
    )
