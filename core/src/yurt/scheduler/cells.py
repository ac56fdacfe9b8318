"""Cells: the best row under spreads without scoring every row again.

All rows of a cell get the same boost, so among those of a cell whose scores are means of equally many parts the order
never changes: it is kept sorted. One array holds the best of each such list with its boost; a placement touches the
lists of its own cell and the boosts of the cells that the spread says changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heappop, heapreplace

import numpy as np

from yurt.scheduler.best import best_rows
from yurt.scheduler.ids import Ties
from yurt.scheduler.spread import FloatArray, SpreadScore
from yurt.state.columns import IntArray, TieArray

MANY = 20
"""With so many cells the next best rows are told one per cell: all rows of a cell fare alike."""
FEW = 3
"""When a third of the cells changed, all are scored: plain arrays are quicker than picking rows."""

Entry = tuple[int, int, int]
"""(negative sum, tie, row): the smallest is the best of its list."""


class Cells:
    """Sorted rows by cell and number of parts; `kept` is how many of the best rows are told."""

    def __init__(
        self, spread: SpreadScore, ties: Ties, rows: IntArray, *, sums: IntArray, counts: IntArray, kept: int
    ) -> None:
        self._spread = spread
        self._kept = kept
        self._top: list[int] | None = None
        self._cell_of_row: list[int] = spread.cell_of_row.tolist()
        self._widest = int(counts.max(initial=0)) + 2
        size = len(spread.boosts)
        self._lists: list[list[list[Entry]]] = [[[] for _ in range(self._widest)] for _ in range(size)]
        places = spread.cell_of_row[rows] * self._widest + counts[rows]
        order = np.lexsort((ties[rows], -sums[rows], places))
        ordered = rows[order]
        entries = list(zip((-sums[ordered]).tolist(), ties[ordered].tolist(), ordered.tolist(), strict=True))
        self._place: dict[int, tuple[int, Entry]] = dict(
            zip(ordered.tolist(), zip(counts[ordered].tolist(), entries, strict=True), strict=True)
        )
        numbers, firsts = np.unique(places[order], return_index=True)
        ends = [*firsts.tolist()[1:], len(entries)] if entries else []
        for place, first, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True):
            self._lists[place // self._widest][place % self._widest] = entries[first:end]
        self._heads: FloatArray = np.full((size, self._widest), -np.inf)
        self._head_ties: TieArray = np.zeros((size, self._widest), np.uint64)
        self._scores: FloatArray = np.full((size, self._widest), -np.inf)
        self._parts: IntArray = np.maximum(1, np.arange(self._widest))
        for cell, lists in enumerate(self._lists):
            for count, ranked in enumerate(lists):
                if ranked:
                    self._heads[cell, count] = -ranked[0][0]
                    self._head_ties[cell, count] = ranked[0][1]
        self._score_all()

    def best(self) -> int | None:
        """The row with the highest score; the tie decides among equals."""
        found = self.top()
        return found[0] if found else None

    def top(self) -> list[int]:
        """The best rows, best first."""
        if self._top is None:
            self._top = self._find_top()
        return self._top

    def _find_top(self) -> list[int]:
        flat, widest = self._scores.reshape(-1), self._widest
        places, _ = best_rows(flat, self._head_ties.reshape(-1), self._kept)
        if len(self._heads) >= MANY:
            heads = [self._lists[place // widest][place % widest][0] for place in places.tolist()]
            ranked = sorted(zip((-flat[places]).tolist(), heads, strict=True), key=_by_score_and_tie)
            return [head[2] for _, head in ranked]
        heap: list[tuple[float, int, int, int, int]] = []
        for place, score in zip(places.tolist(), flat[places].tolist(), strict=True):
            _, tie, row = self._lists[place // widest][place % widest][0]
            heap.append((-score, tie, row, place, 0))
        heap.sort()
        found: list[int] = []
        while heap and len(found) < self._kept:
            _, _, row, place, at = heap[0]
            found.append(row)
            cell, count = divmod(place, widest)
            entries = self._lists[cell][count]
            if at + 1 == len(entries):
                heappop(heap)
                continue
            total, tie, next_row = entries[at + 1]
            boost = int(self._spread.boosts[cell])
            heapreplace(heap, (-((boost - total) / (count + (boost != 0))), tie, next_row, place, at + 1))
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
        self._top = None
        entries = self._lists[cell][count]
        if not entries:
            self._heads[cell, count] = self._scores[cell, count] = -np.inf
            return
        boost = int(self._spread.boosts[cell])
        self._heads[cell, count], self._head_ties[cell, count] = -entries[0][0], entries[0][1]
        self._scores[cell, count] = (boost - entries[0][0]) / (count + (boost != 0))

    def _score_all(self) -> None:
        self._top = None
        boosts = self._spread.boosts[:, None]
        self._scores = (self._heads + boosts) / (self._parts + (boosts != 0))

    def _score(self, cells: IntArray) -> None:
        self._top = None
        boosts = self._spread.boosts[cells][:, None]
        self._scores[cells] = (self._heads[cells] + boosts) / (self._parts + (boosts != 0))


def _by_score_and_tie(entry: tuple[float, Entry]) -> tuple[float, int]:
    return entry[0], entry[1][1]
