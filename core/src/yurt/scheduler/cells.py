"""Cells: the best row under spreads without scoring every row again.

All rows of a cell get the same boost, so among those of a cell whose scores are means of equally many parts, a *line*,
the order never changes: it is kept sorted, its far end as arrays until it is needed. Lines that get the same boost as
long as some values keep their levels are a *group*, and with many cells a group keeps the heads of its lines sorted:
the attribute with the most values tells by its level, the others by their value. So few groups have to be scored for a
placement, however many cells there are. With few cells each line is a group of its own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heapreplace
from typing import Final

import numpy as np

from yurt.scheduler.ids import Ties
from yurt.scheduler.spread import SpreadScore
from yurt.state.columns import IntArray

MANY: Final = 20
"""With so many cells the next best rows are told one per line: all rows of a cell fare alike."""
PIECE: Final = 8
"""Entries of a line that are taken from the arrays at a time."""

Entry = tuple[int, int, int]
"""(negative sum, tie, row): the smallest is the best of its line."""
Lead = tuple[float, int, int, "_Group", int]
"""(negative score, tie, row, group, place in the group)."""


class _Group:
    """Entries that get the same boost and have equally many parts, sorted.

    `lead` is the first with its score, and None when that or the boost may have changed.
    """

    __slots__ = ("boost", "combination", "count", "entries", "lead", "level")

    def __init__(self, combination: int, level: int, count: int, entries: list[Entry]) -> None:
        self.combination = combination
        self.level = level
        self.count = count
        self.entries = entries
        self.boost = 0
        self.lead: Lead | None = None


class _Line:
    """The rows of a cell with equally many parts: sorted `entries`, those still in the arrays begin with `bound`."""

    __slots__ = ("at", "bound", "cell", "count", "end", "entries", "group", "head")

    def __init__(self, cell: int, count: int) -> None:
        self.cell = cell
        self.count = count
        self.entries: list[Entry] = []
        self.at = self.end = 0
        self.bound: Entry | None = None
        self.head: Entry | None = None
        self.group: _Group | None = None


class Cells:
    """The best rows under spreads; `kept` is how many of them are told."""

    def __init__(
        self, spread: SpreadScore, ties: Ties, rows: IntArray, *, sums: IntArray, counts: IntArray, kept: int
    ) -> None:
        self._spread = spread
        self._kept = kept
        self._top: list[tuple[int, int]] | None = None
        self._cell_of_row, self._codes = spread.cells.of_row, spread.cells.codes
        self._sum_of, self._count_of = sums.copy(), counts.copy()
        self._tie_of = ties[np.arange(len(sums))]
        self._void: set[int] = set()
        """Rows of which the arrays tell nothing any more."""
        is_many = len(self._codes) >= MANY
        sizes = [part.size for part in spread.parts]
        self._fine = sizes.index(max(sizes)) if is_many else -1
        """The attribute that tells by its level; -1 for none."""
        self._needed = 1 if is_many else kept
        self._combine()
        self._groups: dict[tuple[int, int, int], _Group] = {}
        self._lines: dict[tuple[int, int], _Line] = {}
        self._lines_of: list[list[_Line]] = [[] for _ in self._codes]
        self._sort(rows)

    def _combine(self) -> None:
        """Number the combinations of values that tell by themselves."""
        fine = self._fine
        others = [tuple(code for part, code in enumerate(codes) if part != fine) for codes in self._codes]
        numbers = {codes: number for number, codes in enumerate(dict.fromkeys(others))}
        self._combination = [numbers[codes] for codes in others]
        self._combined = list(numbers)
        self._others = [part for number, part in enumerate(self._spread.parts) if number != fine]
        self._boosts = [0] * len(numbers)
        self._having: list[dict[int, list[int]]] = [{} for _ in self._others]
        """For each of these attributes the combinations that have a value."""
        for number, codes in enumerate(numbers):
            self._boosts[number] = self._boost_of(number)
            for having, code in zip(self._having, codes, strict=True):
                having.setdefault(code, []).append(number)
        self._cells_of: dict[int, list[int]] = {}
        """The cells that have a value of the attribute that tells by its level."""
        for cell, codes in enumerate(self._codes if fine >= 0 else ()):
            self._cells_of.setdefault(codes[fine], []).append(cell)

    def _sort(self, rows: IntArray) -> None:
        """Put all rows into their lines."""
        cells, counts = self._spread.cells.numbers[rows], self._count_of[rows]
        widest = int(counts.max(initial=0)) + 1
        places = cells * widest + counts
        order = np.lexsort((self._tie_of[rows], -self._sum_of[rows], places))
        self._rows = rows[order]
        self._sums, self._ties = -self._sum_of[self._rows], self._tie_of[self._rows]
        places = places[order]
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        starts = firsts.tolist()
        heads = zip(self._sums[firsts].tolist(), self._ties[firsts].tolist(), self._rows[firsts].tolist(), strict=True)
        ends = [*starts[1:], len(places)]
        for place, first, end, head in zip(places[firsts].tolist(), starts, ends, heads, strict=False):
            line = self._line(*divmod(place, widest))
            line.entries.append(head)
            line.at, line.end = first + 1, end
            if self._fine < 0:
                self._lead(line)
            else:
                line.head = head
                self._join(line)

    def best(self) -> int | None:
        """The row with the highest score; the tie decides among equals."""
        found = self.top()
        return found[0][0] if found else None

    def top(self) -> list[tuple[int, int]]:
        """The best rows, best first, and their boosts."""
        if self._top is None:
            self._top = self._find_top()
        return self._top

    def _find_top(self) -> list[tuple[int, int]]:
        heap = self._leads()
        del heap[self._kept :]
        found: list[tuple[int, int]] = []
        while heap:
            _, _, row, group, at = heap[0]
            boost, entries = group.boost, group.entries
            found.append((row, boost))
            if len(found) == self._kept:
                break
            at += 1
            if at == len(entries):
                heappop(heap)
                continue
            total, tie, row = entries[at]
            heapreplace(heap, ((total - boost) / (group.count + (boost != 0)), tie, row, group, at))
        return found

    def _leads(self) -> list[Lead]:
        """The first of each group with its score, best first."""
        boosts, worth = self._boosts, self._spread.parts[self._fine].worth if self._fine >= 0 else None
        found: list[Lead] = []
        for group in self._groups.values():
            lead = group.lead
            if lead is None and group.entries:
                boost = boosts[group.combination]
                if worth is not None:
                    boost += worth(group.level)
                total, tie, row = group.entries[0]
                group.boost = boost
                lead = group.lead = ((total - boost) / (group.count + (boost != 0)), tie, row, group, 0)
            if lead is not None:
                found.append(lead)
        found.sort()
        return found

    def move(self, row: int, total: int, count: int) -> None:
        """The row has other parts now."""
        self.remove(row)
        self._sum_of[row], self._count_of[row] = total, count
        line = self._line(self._cell_of_row[row], count)
        insort(line.entries, (-total, int(self._tie_of[row]), row))
        self._lead(line)

    def remove(self, row: int) -> None:
        """The row has no room."""
        key = (self._cell_of_row[row], int(self._count_of[row]))
        line = self._lines.get(key)
        if line is None:
            return
        self._void.add(row)
        entries, entry = line.entries, (-int(self._sum_of[row]), int(self._tie_of[row]), row)
        at = bisect_left(entries, entry)
        if at < len(entries) and entries[at] == entry:
            del entries[at]
            self._lead(line)

    def placed(self, row: int, changed: tuple[bool, ...]) -> None:
        """The spread counted a placement on the row; `changed` as it told."""
        self._top = None
        codes = self._codes[self._cell_of_row[row]]
        fine, is_other = self._fine, False
        if fine >= 0:
            is_other = changed[fine]
            for cell in self._cells_of[codes[fine]]:
                for line in self._lines_of[cell]:
                    self._join(line)
            codes, changed = codes[:fine] + codes[fine + 1 :], changed[:fine] + changed[fine + 1 :]
        stale: set[int] = set()
        for having, code, is_everywhere in zip(self._having, codes, changed, strict=True):
            stale.update(range(len(self._boosts)) if is_everywhere else having[code])
        for number in stale:
            self._boosts[number] = self._boost_of(number)
        for group in self._groups.values():
            if is_other or group.combination in stale:
                group.lead = None

    def _boost_of(self, combination: int) -> int:
        total = 0
        for part, code in zip(self._others, self._combined[combination], strict=True):
            total += part.boost(code)
        return total

    def _line(self, cell: int, count: int) -> _Line:
        line = self._lines.get((cell, count))
        if line is None:
            line = self._lines[(cell, count)] = _Line(cell, count)
            self._lines_of[cell].append(line)
        return line

    def _lead(self, line: _Line) -> None:
        """The first of a line may be another one."""
        self._top = None
        entries, needed = line.entries, self._needed
        while line.at < line.end and (len(entries) < needed or line.bound is None or entries[needed - 1] > line.bound):
            self._take_piece(line)
        head = entries[0] if entries else None
        if self._fine < 0:
            self._join(line)
        elif head != line.head:
            self._leave(line)
            line.head = head
            self._join(line)

    def _take_piece(self, line: _Line) -> None:
        at = line.at
        end = line.at = min(at + PIECE, line.end)
        rows, void = self._rows[at:end].tolist(), self._void
        found = zip(self._sums[at:end].tolist(), self._ties[at:end].tolist(), rows, strict=True)
        line.entries += [entry for entry in found if entry[2] not in void] if void else found
        line.entries.sort()
        if end < line.end:
            line.bound = (int(self._sums[end]), int(self._ties[end]), int(self._rows[end]))

    def _join(self, line: _Line) -> None:
        """The line is in the group that it belongs to now."""
        if self._fine < 0:
            key = (line.cell, 0, line.count)
            line.group = line.group or self._groups.setdefault(key, _Group(*key, line.entries))
            line.group.lead = None
            return
        code = self._codes[line.cell][self._fine]
        key = (self._combination[line.cell], self._spread.parts[self._fine].level(code), line.count)
        group = self._groups.get(key)
        if group is not None and group is line.group:
            return
        self._leave(line)
        if line.head is None:
            return
        if group is None:
            group = self._groups[key] = _Group(*key, [])
        insort(group.entries, line.head)
        line.group, group.lead = group, None

    def _leave(self, line: _Line) -> None:
        """The group of the line goes on without it."""
        group, line.group = line.group, None
        if group is None or line.head is None or self._fine < 0:
            return
        del group.entries[bisect_left(group.entries, line.head)]
        group.lead = None
        if not group.entries:
            del self._groups[group.combination, group.level, group.count]
