"""Cells: finds the best row under spreads without rescoring all rows.

All rows of a cell get the same boost, so among those of a cell whose scores are means of equally many parts, a *line*,
the order never changes: it is kept sorted, its far end as arrays until it is needed. Lines that get the same boost as
long as some values keep their levels are a *group*, and with many cells a group keeps the heads of its lines sorted:
the attribute with the most values tells by its level, the others by their value. So few groups have to be scored for a
placement, however many cells there are. With few cells each line is a group of its own.

A placement changes some lines; they are put in order and find their groups only when the best rows are asked for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heapreplace
from typing import Final

from yurt.scheduler.ids import Ties
from yurt.scheduler.placing.cell_boosts import CellBoosts
from yurt.scheduler.placing.sorted_rows import SortedRows
from yurt.scheduler.placing.spread import SpreadScore
from yurt.state.arrays import IntArray

MANY: Final = 20
"""From this number of cells on, the next best rows are reported one per line: rows of a cell have similar scores."""
NO_WORTH: Final = [0]
"""The value of a level that no attribute determines."""

Entry = tuple[int, int, int]
"""(negative sum, tie, row): the smallest is the best of its line."""
Lead = tuple[float, int, int, "_Group", int]
"""(negative score, tie, row, group, place in the group)."""
Key = tuple[int, int, int]
"""The common values of a group's lines: values, level, and the number of parts of their rows."""


class _Group:
    """Sorted entries with equal boosts and equal numbers of parts.

    `lead` is the first with its score, and None when the first may have changed; `parts` counts the boost as well.
    """

    __slots__ = ("boost", "entries", "key", "lead", "parts")

    def __init__(self, key: Key, entries: list[Entry]) -> None:
        self.key = key
        self.entries = entries
        self.boost = 0
        self.parts = 0
        self.lead: Lead | None = None


class _CellLine:
    """The rows of a cell with equal numbers of parts.

    `entries` are sorted; the others are still in the arrays, in order, `next` the first of them and then from `at`
    to `end`. The group knows the line by its `head`.
    """

    __slots__ = ("at", "cell", "count", "end", "entries", "group", "head", "is_changed", "next")

    def __init__(self, cell: int, count: int) -> None:
        self.cell = cell
        self.count = count
        self.entries: list[Entry] = []
        self.at = self.end = 0
        self.next: Entry | None = None
        self.head: Entry | None = None
        self.group: _Group | None = None
        self.is_changed = False


class Cells:
    """The best rows under spreads; `limit` is the number of rows that are maintained."""

    def __init__(
        self, spread: SpreadScore, ties: Ties, rows: IntArray, *, sums: IntArray, counts: IntArray, limit: int
    ) -> None:
        self._spread = spread
        self._limit = limit
        self._top: list[tuple[int, int]] | None = None
        self._cell_of_row, self._codes = spread.cells.of_row, spread.cells.codes
        self._sorted = SortedRows(spread.cells.numbers, ties, rows, sums=sums, counts=counts)
        self._moved: dict[int, tuple[_CellLine, Entry] | None] = {}
        """Rows whose entries in the arrays are out of date, with their present line and entry."""
        assert len(sums) == len(counts) == len(self._cell_of_row), (len(sums), len(counts), len(self._cell_of_row))
        is_many = len(self._codes) >= MANY
        sizes = [part.size for part in spread.parts]
        self._fine = sizes.index(max(sizes)) if is_many else -1
        """The attribute whose boost is added by its level (the one with the most values); -1 for none."""
        self._needed = 1 if is_many else limit
        self._boosts = CellBoosts(spread, self._fine)
        self._groups: dict[Key, _Group] = {}
        self._lines: dict[tuple[int, int], _CellLine] = {}
        self._lines_of: dict[int, list[_CellLine]] = {}
        """The lines with each value of that attribute."""
        self._changed: list[_CellLine] = []
        for cell, count, first, end in self._sorted.lines():
            line = self._line(cell, count)
            line.at, line.end = first, end
            self._advance(line)
            self._change(line)

    def best(self) -> int | None:
        """The row with the highest score; ties are broken by the tie-breakers."""
        rows = self.top()
        return rows[0][0] if rows else None

    def top(self) -> list[tuple[int, int]]:
        """The best rows, best first, and their boosts."""
        if self._top is None:
            self._top = self._find_top()
        return self._top

    def _find_top(self) -> list[tuple[int, int]]:
        # A row of any other group has `limit` better rows before it: the leads of these groups. The list is sorted, so
        # it is a heap already.
        heap = self._leads()
        del heap[self._limit :]
        top: list[tuple[int, int]] = []
        while heap:
            _, _, row, group, at = heap[0]
            boost, entries = group.boost, group.entries
            top.append((row, boost))
            if len(top) == self._limit:
                break
            at += 1
            if at == len(entries):
                heappop(heap)
                continue
            total, tie, row = entries[at]
            heapreplace(heap, ((total - boost) / group.parts, tie, row, group, at))
        return top

    def _leads(self) -> list[Lead]:
        """The first entry of each group with its score, best first."""
        self._regroup()
        boosts, worths = self._boosts.boosts, self._spread.parts[self._fine].worths if self._fine >= 0 else NO_WORTH
        leads: list[Lead] = []
        for group in self._groups.values():
            combination, level, count = group.key
            boost, lead = boosts[combination] + worths[level], group.lead
            # Most placements leave most boosts alone: a lead that still holds costs one comparison.
            if lead is None or boost != group.boost:
                if not group.entries:
                    continue
                group.boost, group.parts = boost, count + (boost != 0)
                total, tie, row = group.entries[0]
                lead = group.lead = ((total - boost) / group.parts, tie, row, group, 0)
            leads.append(lead)
        leads.sort()
        return leads

    def move(self, row: int, total: int, count: int) -> None:
        """Update the parts of a row."""
        self.remove(row)
        line, entry = self._line(self._cell_of_row[row], count), (-total, self._sorted.tie_of.item(row), row)
        self._moved[row] = (line, entry)
        insort(line.entries, entry)
        self._change(line)

    def remove(self, row: int) -> None:
        """Remove a row without capacity."""
        if row in self._moved:
            moved = self._moved[row]
        else:
            sorted_rows = self._sorted
            line = self._lines.get((self._cell_of_row[row], sorted_rows.count_of.item(row)))
            moved = None if line is None else (line, (-sorted_rows.sum_of.item(row), sorted_rows.tie_of.item(row), row))
        # Rows are not taken out of the sorted arrays, which would move all after them; `_fill` skips them instead.
        self._moved[row] = None
        if moved is None:
            return
        line, entry = moved
        at = bisect_left(line.entries, entry)
        if at < len(line.entries) and line.entries[at] == entry:
            del line.entries[at]
            self._change(line)

    def placed(self, row: int, changed: tuple[bool, ...]) -> None:
        """Update the boosts after a placement on the row; `changed` is the result of `SpreadScore.count`."""
        self._top = None
        codes, fine = self._codes[self._cell_of_row[row]], self._fine
        if fine >= 0:
            # The attribute with the most values changes one level: its lines change groups, all other lines stay.
            for line in self._lines_of.get(codes[fine], ()):
                self._change(line)
            codes, changed = codes[:fine] + codes[fine + 1 :], changed[:fine] + changed[fine + 1 :]
        self._boosts.placed(codes, changed)

    def _line(self, cell: int, count: int) -> _CellLine:
        line = self._lines.get((cell, count))
        # Lines of a count that no row had are made as rows get there: most combinations never occur.
        if line is None:
            line = self._lines[cell, count] = _CellLine(cell, count)
            if self._fine < 0:
                key = (self._boosts.combination[cell], 0, count)
                line.group = self._groups[key] = _Group(key, line.entries)
            else:
                self._lines_of.setdefault(self._codes[cell][self._fine], []).append(line)
        return line

    def _change(self, line: _CellLine) -> None:
        """Mark a line whose first entry or group may change."""
        self._top = None
        if not line.is_changed:
            line.is_changed = True
            self._changed.append(line)

    def _regroup(self) -> None:
        """Restore the order and groups of the changed lines."""
        for line in self._changed:
            line.is_changed = False
            self._fill(line)
            if self._fine >= 0:
                self._join(line)
            elif line.group is not None:
                line.group.lead = None
        self._changed.clear()

    def _fill(self, line: _CellLine) -> None:
        """Take entries from the arrays until the first ones are certain."""
        entries, needed = line.entries, self._needed
        while line.next is not None and (len(entries) < needed or line.next < entries[needed - 1]):
            if line.next[2] not in self._moved:
                insort(entries, line.next)
            self._advance(line)

    def _advance(self, line: _CellLine) -> None:
        at = line.at
        if at == line.end:
            line.next = None
            return
        sorted_rows = self._sorted
        line.next = (sorted_rows.sums.item(at), sorted_rows.ties.item(at), sorted_rows.rows.item(at))
        line.at = at + 1

    def _join(self, line: _CellLine) -> None:
        """Put the line into the group of its first entry."""
        cell, head, old = line.cell, line.entries[0] if line.entries else None, line.group
        part = self._spread.parts[self._fine]
        key = (self._boosts.combination[cell], part.levels[self._codes[cell][self._fine]], line.count)
        if old is not None and line.head is not None:
            if head == line.head and old.key == key:
                return
            at = bisect_left(old.entries, line.head)
            assert old.entries[at] == line.head, "a group knows each of its lines by its head"
            del old.entries[at]
            old.lead = None
            if not old.entries:
                del self._groups[old.key]
        line.head, line.group = head, None
        if head is not None:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(key, [])
            insort(group.entries, head)
            line.group, group.lead = group, None
