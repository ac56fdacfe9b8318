"""Spread: the boost that a node gets for the value it has of an attribute (semantics 15).

Boosts are whole numbers of 1e-9, kept per value and summed per cell, a cell being a combination of values. A placement
changes the boost of one value, or of all values of an attribute when the least or the most count of it changes; only
the cells that have a changed value are told to whoever ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from yurt.scheduler.feasible import property_codes
from yurt.state.columns import IntArray
from yurt.state.store import Snapshot
from yurt.structs.constraint import Spread
from yurt.structs.job import Job, TaskGroup

FloatArray = npt.NDArray[np.float64]
IMPLICIT_TARGET = "*"
UNIT = 1_000_000_000
"""Scores are compared in this many parts of one."""


class SpreadScore:
    """All spreads of a group: one boost per cell."""

    def __init__(self, snapshot: Snapshot, job: Job, group: TaskGroup) -> None:
        spreads = (*group.spreads, *job.spreads)
        weight = sum(spread.weight for spread in spreads)
        self._parts = [_part(snapshot, spread, group.count, weight_sum=weight) for spread in spreads]
        self.cell_of_row: IntArray = np.zeros(0, np.int64)
        self.boosts: IntArray = np.zeros(1, np.int64)
        if not self._parts:
            return
        self._codes = self._number_cells()
        self.boosts = np.zeros(len(self._codes[0]), np.int64)
        self._cells_of: list[dict[int, IntArray]] = []
        for part, codes in zip(self._parts, self._codes, strict=True):
            self._cells_of.append({code: np.flatnonzero(codes == code) for code in set(codes.tolist())})
            self.boosts += part.shown[codes]
        self._everywhere: IntArray = np.arange(len(self.boosts))

    def _number_cells(self) -> list[IntArray]:
        """Number the combinations of values that occur; for each part the value of each cell."""
        cells = np.zeros(len(self._parts[0].codes), np.int64)
        firsts = np.zeros(0, np.int64)
        for part in self._parts:
            mixed = cells * (int(part.codes.max(initial=0)) + 2) + part.codes + 1
            _, firsts, cells = np.unique(mixed, return_index=True, return_inverse=True)
        self.cell_of_row = cells.reshape(-1)
        return [part.codes[firsts] for part in self._parts]

    @property
    def is_used(self) -> bool:
        """Whether the group spreads at all."""
        return bool(self._parts)

    def count(self, rows: Iterable[int], sign: int = 1) -> list[IntArray]:
        """Allocations of the group that are on these rows; the cells whose boost changed."""
        changed = []
        for row in rows:
            for part, codes, cells_of in zip(self._parts, self._codes, self._cells_of, strict=True):
                code = part.code_of_row[row]
                if code < 0:
                    continue
                before = part.boosts[code]
                if part.count(code, sign):
                    shown = part.shown
                    part.shown = np.array(part.boosts, np.int64)
                    self.boosts += (part.shown - shown)[codes]
                    changed.append(self._everywhere)
                elif part.boosts[code] != before:
                    cells = cells_of[code]
                    self.boosts[cells] += part.boosts[code] - before
                    part.shown[code] = part.boosts[code]
                    changed.append(cells)
        return changed


class _Part:
    """One spread; boosts are indexed by value number, and by -1 for nodes without the attribute."""

    def __init__(self, codes: IntArray, size: int) -> None:
        self.codes = codes
        self.code_of_row: list[int] = codes.tolist()
        self.boosts = [0] * size + [-UNIT]
        self.shown: IntArray = np.array(self.boosts, np.int64)
        """The boosts that the cells have."""
        self._counts = [0] * (size + 1)


class _Even(_Part):
    """As many for each value. `count` tells whether boosts of other values changed too."""

    def __init__(self, codes: IntArray, size: int) -> None:
        super().__init__(codes, size)
        self._numbers: dict[int, int] = {}
        self._range = (0, 0)

    def count(self, code: int, sign: int) -> bool:
        old = self._counts[code]
        new = self._counts[code] = old + sign
        numbers = self._numbers
        numbers[new] = numbers.get(new, 0) + 1
        if old:
            numbers[old] -= 1
            if not numbers[old]:
                del numbers[old]
        seen = [number for number in numbers if number > 0]
        found = (min(seen), max(seen)) if seen else (0, 0)
        if found == self._range:
            self.boosts[code] = self._boost(new)
            return False
        self._range = found
        self.boosts[:-1] = [self._boost(count) for count in self._counts[:-1]]
        return True

    def _boost(self, count: int) -> int:
        low, high = self._range
        if low <= 0:
            return 0
        if count == low:
            return -UNIT if low == high else round((high - low) / low * UNIT)
        return round((low - count) / low * UNIT)


class _Targeted(_Part):
    """A share for each value."""

    def __init__(self, codes: IntArray, desired: list[float], weight: float) -> None:
        super().__init__(codes, len(desired))
        self._desired = desired
        self._weight = weight
        self._has_zero = 0 in desired
        self._fill()
        self.shown = np.array(self.boosts, np.int64)

    def count(self, code: int, sign: int) -> bool:
        self._counts[code] += sign
        if self._has_zero:
            self._fill()
            return True
        self.boosts[code] = self._boost(code)
        return False

    def _fill(self) -> None:
        size = len(self._desired)
        values = [self._boost(code) for code in range(size)]
        least = min((-UNIT, *values))
        self.boosts[:-1] = [least if self._desired[code] == 0 else values[code] for code in range(size)]

    def _boost(self, code: int) -> int:
        desired = self._desired[code]
        if desired <= 0:
            return -UNIT
        return round((desired - self._counts[code] - 1) / desired * self._weight * UNIT)


def _part(snapshot: Snapshot, spread: Spread, count: int, *, weight_sum: int) -> _Even | _Targeted:
    codes, values = property_codes(snapshot, spread.attribute)
    if not spread.spread_target:
        return _Even(codes, len(values))
    wanted = {target.value: target.percent / 100 * count for target in spread.spread_target}
    rest = count - sum(wanted.values())
    implicit = wanted.get(IMPLICIT_TARGET, rest if 0 < rest < count else -1.0)
    desired = [wanted.get(value, implicit) for value in values]
    return _Targeted(codes, desired, spread.weight / weight_sum if weight_sum else 0.0)
