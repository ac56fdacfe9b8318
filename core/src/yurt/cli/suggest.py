"""Suggestions for misspelt words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFIX_CHARACTERS: Final = 3


def nearest(word: str, candidates: Iterable[str]) -> str:
    """The known word closest to `word`, or the only one that begins with it, or "" when none is close."""
    best, best_distance = "", max(1, len(word) // 3) + 1
    longer = []
    for candidate in candidates:
        if len(word) >= PREFIX_CHARACTERS and candidate.lower().startswith(word.lower()):
            longer.append(candidate)
        distance = edit_distance(word.lower(), candidate.lower(), bound=best_distance)
        if distance < best_distance:
            best, best_distance = candidate, distance
    return best or (longer[0] if len(longer) == 1 else "")


def did_you_mean(word: str, candidates: Iterable[str], *, prefix: str = "") -> str:
    """` (did you mean "x"?)`, or "" when nothing is close."""
    found = nearest(word, candidates)
    return f' (did you mean "{prefix}{found}"?)' if found else ""


def edit_distance(left: str, right: str, *, bound: int) -> int:
    """Insertions, deletions, changes and swaps of neighbours between the words; `bound` and more are equal."""
    if abs(len(left) - len(right)) >= bound:
        return bound
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        now = [i]
        for j, b in enumerate(right, 1):
            cost = min(row[j] + 1, now[j - 1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            now.append(cost)
        before, row = row, now
    return min(row[-1], bound)
