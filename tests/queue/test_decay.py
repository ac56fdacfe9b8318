"""Usage that decays: exact, whatever the times at which somebody looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.decay import (
    SCALE_BITS,
    DecayedUsage,
    advanced,
    lifetime,
    no_usage,
    power_of_two,
    rebased,
    used,
    with_rates,
)

HOUR = 3_600_000_000_000
half_lives = st.integers(HOUR // 60, 90 * 24 * HOUR)
times = st.integers(0, 400 * 24 * HOUR)
rates = st.tuples(st.integers(0, 10**9), st.integers(0, 10**7))


@given(st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=2), st.integers(1, 10**12))
def test_powers_of_two_never_fall(numerators: list[int], denominator: int) -> None:
    low, high = sorted(n % (denominator * 50) - denominator * 10 for n in numerators)
    assert power_of_two(low, denominator) <= power_of_two(high, denominator)


@given(st.integers(-20, 40), st.integers(1, 10**15))
def test_whole_powers_are_exact(exponent: int, denominator: int) -> None:
    exact = 1 << (SCALE_BITS + exponent)
    assert power_of_two(exponent * denominator, denominator) == exact


@given(st.floats(0, 30))
def test_powers_are_those_of_mathematics(exponent: float) -> None:
    found = power_of_two(round(exponent * 10**12), 10**12) / 2**SCALE_BITS
    assert abs(found / 2**exponent - 1) < 1e-8


@given(half_lives, rates, times, st.lists(times, max_size=8))
def test_any_division_of_an_interval_gives_the_same_usage(
    half_life: int, rate: tuple[int, int], end: int, looks: list[int]
) -> None:
    start = with_rates(no_usage(2, now=0), rate, now=0, half_life=half_life)
    at_once = used(start, end, half_life)
    step_by_step = start
    for look in sorted(time for time in looks if time <= end):
        step_by_step = advanced(step_by_step, look, half_life)
    for one, other in zip(at_once, used(step_by_step, end, half_life), strict=True):
        # A move of the landmark rounds; otherwise not a bit differs.
        assert abs(one - other) <= (1 + len(looks)) * (2 + 2 * max(rate)), "a nanosecond of the rate"


@given(half_lives, st.integers(1, 10**9))
def test_usage_halves_with_each_half_life(half_life: int, rate: int) -> None:
    held = with_rates(no_usage(1, now=0), (rate,), now=0, half_life=half_life)
    ended = with_rates(held, (0,), now=half_life, half_life=half_life)
    first, second = used(ended, half_life, half_life)[0], used(ended, 2 * half_life, half_life)[0]
    assert abs(first - 2 * second) <= 2


@given(half_lives, rates, st.lists(times, min_size=1, max_size=10))
def test_a_clock_that_jumps_neither_lowers_usage_nor_makes_it_negative(
    half_life: int, rate: tuple[int, int], clock: list[int]
) -> None:
    usage = with_rates(no_usage(2, now=0), rate, now=0, half_life=half_life)
    reached, before = 0, (0, 0)
    for time in clock:
        usage = with_rates(usage, rate, now=time, half_life=half_life)
        assert usage.at >= reached
        found = used(usage, time, half_life)
        assert min(found) >= 0
        rounding = [2 + 2 * one for one in rate]
        rising = zip(found, before, rounding, strict=True)
        assert all(new + some >= old for new, old, some in rising), "held for longer, used no less"
        reached, before = usage.at, found


@given(half_lives, st.integers(1, 10**9))
def test_usage_of_a_rate_held_for_ever_is_the_rate_times_a_lifetime(half_life: int, rate: int) -> None:
    held = with_rates(no_usage(1, now=0), (rate,), now=0, half_life=half_life)
    found = used(held, 40 * half_life, half_life)[0]
    assert abs(found - rate * lifetime(half_life)) <= rate * (2 + lifetime(half_life) // 10**7)


@given(half_lives, half_lives, rates, times)
def test_another_half_life_changes_what_follows_and_not_what_was(
    before: int, after: int, rate: tuple[int, int], now: int
) -> None:
    usage = with_rates(no_usage(2, now=0), rate, now=0, half_life=before)
    assert used(rebased(usage, now, before=before, after=after), now, after) == used(usage, now, before)


def test_a_landmark_moves_before_totals_grow_without_bound() -> None:
    usage = with_rates(no_usage(1, now=0), (1000,), now=0, half_life=HOUR)
    for day in range(1, 200):
        usage = advanced(usage, day * 24 * HOUR, HOUR)
    assert isinstance(usage, DecayedUsage)
    assert usage.totals[0].bit_length() < 100
    assert usage.at - usage.landmark < 32 * HOUR
