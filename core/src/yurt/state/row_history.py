"""The history of rows: cached results per row, and which rows changed since."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from itertools import chain
from typing import Any

STEPS_MAX = 1 << 12
"""The number of steps after which a new, empty history begins: each step takes 200 bytes."""
ANSWERS_MAX = 1024


class RowHistory:
    """Which rows changed at each step between node columns, with the results cached at earlier steps.

    A place in it is how many steps there had been. Of columns that branch off, those that come first go on with the
    history, the others begin their own. Safe for threads, for each step is published by one assignment.
    """

    def __init__(self) -> None:
        self._steps: dict[int, tuple[int, ...]] = {}
        """The rows that changed after each position."""
        self._answers: dict[Hashable, tuple[int, Any]] = {}

    def after(self, place: int, changed: Collection[int]) -> tuple[RowHistory, int]:
        """The history and position of columns that follow a position and differ in these rows."""
        assert 0 <= place <= STEPS_MAX, (place, "a position in a history of bounded length")
        step = tuple(changed)
        if place >= STEPS_MAX or self._steps.setdefault(place, step) is not step:
            return RowHistory(), 0
        return self, place + 1

    def earlier(self, key: Hashable, place: int) -> tuple[Any, list[int]] | None:
        """A result from this position or before, and the rows changed since."""
        then, answer = self._answers.get(key, (place + 1, None))
        if then > place:
            return None
        return answer, list(set(chain.from_iterable(self._steps[step] for step in range(then, place))))

    def keep(self, key: Hashable, place: int, answer: Any) -> None:
        """Cache a result for this position."""
        if place >= self._answers.get(key, (0, None))[0]:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = (place, answer)
