"""The window: some of the best rows in order, so that the next placement reads only these.

A placement changes the score of its own row. The row moves within the window, or leaves it when it falls below the last
score with which the window was filled: outside there may be better rows then. An empty window is filled again.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

import numpy as np

from yurt.scheduler.ids import Ties
from yurt.scheduler.placing.terms.term import FloatArray
from yurt.scheduler.placing.top_k import best_rows

WINDOW_MIN: Final = 16
WINDOW_MAX: Final = 256

Entry = tuple[float, int, int]
"""(negative score, tie, row): the smallest is the best."""
NO_BOUND: Final[Entry] = (np.inf, 0, 0)


class Window:
    """The best rows, sorted; `entries` is empty when they are unknown."""

    __slots__ = ("_bound", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._bound: Entry = NO_BOUND

    @property
    def has_all(self) -> bool:
        """Whether the window holds all rows with capacity."""
        return bool(self.entries) and self._bound == NO_BOUND

    def fill(self, scores: FloatArray, ties: Ties, size: int) -> None:
        """Set the best rows."""
        rows, is_all = best_rows(scores, ties, size)
        self.entries = sorted(zip((-scores[rows]).tolist(), ties[rows].tolist(), rows.tolist(), strict=True))
        assert len(self.entries) <= size, (len(self.entries), size)
        # When the window holds all rows with capacity, no row outside can be better: no row ever has to leave.
        self._bound = NO_BOUND if is_all or not self.entries else self.entries[-1]

    def move(self, entry: Entry) -> None:
        """Update a row's score; the window must not be empty."""
        entries, row = self.entries, entry[2]
        assert entries, "an empty window knows no bound: it is filled first"
        # The placement is nearly always on the first row, which needs no search.
        if entries[0][2] == row:
            del entries[0]
        else:
            self.entries = entries = [each for each in entries if each[2] != row]
        # Below the bound, rows outside the window may be better, so this row leaves the window.
        if entry <= self._bound:
            insort(entries, entry)

    def remove(self, row: int) -> None:
        """Remove a closed row."""
        self.entries = [entry for entry in self.entries if entry[2] != row]
