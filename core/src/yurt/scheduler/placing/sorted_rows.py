"""All rows sorted by line, best first within each line, in arrays of which few entries are read."""

from __future__ import annotations

import numpy as np

from yurt.scheduler.ids import Ties
from yurt.state.arrays import IntArray, TieArray, order_of


class SortedRows:
    """The rows as of the last scoring of all rows; the caller tracks later changes."""

    __slots__ = ("_places", "_widest", "count_of", "rows", "sum_of", "sums", "tie_of", "ties")

    def __init__(self, cells: IntArray, ties: Ties, rows: IntArray, *, sums: IntArray, counts: IntArray) -> None:
        """`cells` is the cell of each row; `rows` are those with capacity."""
        self.sum_of, self.count_of = sums.copy(), counts.copy()
        self.tie_of = ties[np.arange(len(sums))]
        numbers, parts = cells[rows], self.count_of[rows]
        assert not len(parts) or parts.min() > 0, "the fitness is a part of every row's score"
        self._widest = int(parts.max(initial=0)) + 1
        places = numbers * self._widest + parts
        # One sort of all rows by (place, sum, tie) instead of one for each line: the lines are then slices of it.
        order = _ordered(self.tie_of[rows], -self.sum_of[rows], places)
        self.rows, self._places = rows[order], places[order]
        self.sums, self.ties = -self.sum_of[self.rows], self.tie_of[self.rows]

    def lines(self) -> list[tuple[int, int, int, int]]:
        """Each line: its cell, the number of parts of its rows, and its start and end index."""
        firsts = np.flatnonzero(np.diff(self._places, prepend=-1))
        cells, counts = np.divmod(self._places[firsts], self._widest)
        starts = firsts.tolist()
        return list(zip(cells.tolist(), counts.tolist(), starts, [*starts[1:], len(self._places)], strict=False))


def _ordered(*keys: IntArray | TieArray) -> IntArray:
    """The order by several keys, the last one first, as numpy's `lexsort`; faster for many equal values."""
    order = order_of(keys[0])
    for key in keys[1:]:
        order = order[order_of(key[order])]
    return order
