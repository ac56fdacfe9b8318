"""The known name that a misspelt one means."""

from __future__ import annotations

import string
from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.rules.likeness import LENGTH_MAX, nearest

NAMES = st.text(string.ascii_lowercase + ".", min_size=1, max_size=12)


@pytest.mark.parametrize("typed", ["kernl.name", "kernel.nam", "kernel.naem", "ernel.name", "kerneel.name"])
def test_a_slip_is_mended_among_hundreds_of_names(typed: str) -> None:
    known = [f"driver.d{number}.version" for number in range(500)] + ["kernel.name"]
    assert nearest(typed, known, cutoff=0.75) == "kernel.name"


@given(NAMES, st.lists(NAMES, max_size=20))
def test_what_is_found_is_as_alike_as_asked_for(name: str, known: list[str]) -> None:
    found = nearest(name, known, cutoff=0.75)
    assert found is None or get_close_matches(name, [found], cutoff=0.75) == [found]
    assert nearest(name, [*known, name], cutoff=0.75) == name


def test_a_long_name_is_like_none() -> None:
    assert nearest("x" * (LENGTH_MAX + 1), ["x" * (LENGTH_MAX + 1)], cutoff=0.1) is None
