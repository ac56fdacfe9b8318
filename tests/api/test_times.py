"""Durations are read exactly, and a text that is none costs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.sdk.value import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2562047h47m16.854775807s", 2**63 - 1),
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("-2562047h47m16.854775807s", 1 - 2**63),
        ("1h30m", 5400 * 10**9), (".5s", 5 * 10**8), ("5.s", 5 * 10**9), ("+250ms", 25 * 10**7), ("0", 0), ("-0", 0),
        ("1.5ns", 1), ("1µs", 1000), ("1μs", 1000), ("1us1ns", 1001), ("0.000000001s", 1),
    ],
)  # fmt: skip
def test_a_duration_is_exact(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@given(st.integers(0, 2**63 - 1))
def test_what_go_writes_is_read_back(nanoseconds: int) -> None:
    assert parse_duration(duration_text(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "+", "1", "s", ".s", "1h ", " 1h", "1d", "1.2.3s", "--1s", "1e3s", "2562047h47m16.854775808s",
        "\N{ARABIC-INDIC DIGIT ONE}s", "²s", "0" * 64 + "1s", "1" * 1_000_000 + "s", "1s" * 500_000,
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_its_beginning(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 100
