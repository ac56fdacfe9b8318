"""Finds the known name that a misspelt one means, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nlargest
from itertools import islice, takewhile
from typing import Final

KNOWN_MAX: Final = 2_000
"""So many known names are looked at."""
COMPARED_MAX: Final = 20
"""So many are compared as a whole, which costs a hundred times as much: those that share most at their two ends."""
LENGTH_MAX: Final = 128
"""Longer names are like none."""


def nearest(name: str, known: Iterable[str], *, cutoff: float) -> str | None:
    """The known name that looks most alike; None below the likeness `cutoff`, 0 to 1."""
    if len(name) > LENGTH_MAX:
        return None
    difference = len(name) // 3 + 5
    near = (each for each in islice(known, KNOWN_MAX) if abs(len(each) - len(name)) <= difference)
    likely = nlargest(COMPARED_MAX, near, key=lambda each: _shared(name, each))
    found = get_close_matches(name, likely, n=1, cutoff=cutoff)
    return found[0] if found else None


def _shared(one: str, other: str) -> int:
    """The number of characters that two names share at the front and at the back."""
    return _common(one, other) + _common(reversed(one), reversed(other))


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
