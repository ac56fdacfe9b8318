"""Finds the name that a misspelt one most likely means, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import islice, takewhile
from typing import Final

CANDIDATES_MAX: Final = 2_000
"""The maximum number of candidates that are examined."""
COMPARED_MAX: Final = 20
"""The maximum number of candidates that are compared as a whole, which costs a hundred times as much: those with the
longest common beginning and end."""
LENGTH_MAX: Final = 128
"""The maximum length of a name to look for; a longer one matches none."""


def nearest(name: str, candidates: Iterable[str], *, cutoff: float) -> str | None:
    """The most similar candidate; None if all are below the likeness `cutoff`, 0 to 1."""
    if len(name) > LENGTH_MAX:
        return None
    from difflib import get_close_matches

    difference = len(name) // 3 + 5
    near = (each for each in islice(candidates, CANDIDATES_MAX) if abs(len(each) - len(name)) <= difference)
    likely = nlargest(COMPARED_MAX, near, key=lambda each: _shared(name, each))
    found = get_close_matches(name, likely, n=1, cutoff=cutoff)
    return found[0] if found else None


def _shared(one: str, other: str) -> int:
    """The number of equal characters at the beginnings and at the ends of two names."""
    return _common(one, other) + _common(reversed(one), reversed(other))


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
