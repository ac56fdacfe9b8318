"""Cells: the best row under spreads without scoring every row again.

All rows of a cell get the same boost, so among those of a cell whose scores are means of equally many parts the order
never changes: it is kept sorted. One array holds the best of each such list with its boost; a placement touches the
lists of its own cell and the boosts of the cells that the spread says changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np

from yurt.scheduler.best import best_rows
from yurt.scheduler.spread import FloatArray, SpreadScore
from yurt.state.columns import IntArray, TieArray

FEW = 3
"""When a third of the cells changed, all are scored: plain arrays are quicker than picking rows."""

Entry = tuple[int, int, int]
"""(negative sum, tie, row): the smallest is the best of its list."""


class Cells:
    """Sorted rows by cell and number of parts."""

    def __init__(self, spread: SpreadScore, ties: TieArray, rows: IntArray, sums: IntArray, counts: IntArray) -> None:
        self._spread = spread
        self._ties = ties
        self._cell_of_row: list[int] = spread.cell_of_row.tolist()
        self._widest = int(counts.max(initial=0)) + 2
        size = len(spread.boosts)
        self._lists: list[list[list[Entry]]] = [[[] for _ in range(self._widest)] for _ in range(size)]
        self._place: dict[int, tuple[int, Entry]] = {}
        for row, total, tie, count in zip(
            rows.tolist(), sums[rows].tolist(), ties[rows].tolist(), counts[rows].tolist(), strict=True
        ):
            entry = (-total, tie, row)
            self._lists[self._cell_of_row[row]][count].append(entry)
            self._place[row] = (count, entry)
        self._heads: FloatArray = np.full((size, self._widest), -np.inf)
        self._head_ties: TieArray = np.zeros((size, self._widest), np.uint64)
        self._scores: FloatArray = np.full((size, self._widest), -np.inf)
        self._parts: IntArray = np.arange(self._widest)
        for cell, lists in enumerate(self._lists):
            for count, entries in enumerate(lists):
                if entries:
                    entries.sort()
                    self._heads[cell, count] = -entries[0][0]
                    self._head_ties[cell, count] = entries[0][1]
        self._score_all()

    def best(self) -> int | None:
        """The row with the highest score; the tie decides among equals."""
        if not self._scores.size:
            return None
        flat = self._scores.reshape(-1)
        at = int(flat.argmax())
        if flat[at] == -np.inf:
            return None
        equal = np.flatnonzero(flat == flat[at])
        if len(equal) > 1:
            at = int(equal[self._head_ties.reshape(-1)[equal].argmin()])
        return self._head(at)[2]

    def top(self, number: int) -> list[int]:
        """The best rows, best first."""
        flat = self._scores.reshape(-1)
        places, _ = best_rows(flat, self._head_ties.reshape(-1), number)
        heap: list[tuple[float, int, int, int, int]] = []
        for place, score in zip(places.tolist(), flat[places].tolist(), strict=True):
            _, tie, row = self._head(place)
            heap.append((-score, tie, row, place, 0))
        heap.sort()
        found: list[int] = []
        while heap and len(found) < number:
            _, _, row, place, at = heappop(heap)
            found.append(row)
            cell, count = divmod(place, self._widest)
            entries = self._lists[cell][count]
            if at + 1 < len(entries):
                total, tie, next_row = entries[at + 1]
                boost = int(self._spread.boosts[cell])
                heappush(heap, (-((boost - total) / (count + (boost != 0))), tie, next_row, place, at + 1))
        return found

    def move(self, row: int, total: int, count: int) -> None:
        """The row has other parts now."""
        known, entry = self._place[row]
        cell = self._cell_of_row[row]
        self._take(cell, known, entry)
        entry = (-total, entry[1], row)
        insort(self._lists[cell][count], entry)
        self._place[row] = (count, entry)
        self._lead(cell, known)
        self._lead(cell, count)

    def remove(self, row: int) -> None:
        """The row has no room."""
        known = self._place.pop(row, None)
        if known is not None:
            cell = self._cell_of_row[row]
            self._take(cell, known[0], known[1])
            self._lead(cell, known[0])

    def boosted(self, changed: Iterable[IntArray]) -> None:
        """The boosts of these cells changed."""
        arrays = list(changed)
        if not arrays:
            return
        if sum(map(len, arrays)) * FEW > len(self._heads):
            self._score_all()
        else:
            self._score(np.concatenate(arrays) if len(arrays) > 1 else arrays[0])

    def _take(self, cell: int, count: int, entry: Entry) -> None:
        entries = self._lists[cell][count]
        del entries[bisect_left(entries, entry)]

    def _lead(self, cell: int, count: int) -> None:
        """The first of a list may be another one."""
        entries = self._lists[cell][count]
        if not entries:
            self._heads[cell, count] = self._scores[cell, count] = -np.inf
            return
        boost = int(self._spread.boosts[cell])
        self._heads[cell, count], self._head_ties[cell, count] = -entries[0][0], entries[0][1]
        self._scores[cell, count] = (boost - entries[0][0]) / (count + (boost != 0))

    def _head(self, place: int) -> Entry:
        cell, count = divmod(place, self._widest)
        return self._lists[cell][count][0]

    def _score_all(self) -> None:
        boosts = self._spread.boosts[:, None]
        self._scores = (self._heads + boosts) / np.maximum(1, self._parts + (boosts != 0))

    def _score(self, cells: IntArray) -> None:
        boosts = self._spread.boosts[cells][:, None]
        parts = np.maximum(1, self._parts + (boosts != 0))
        self._scores[cells] = (self._heads[cells] + boosts) / parts
