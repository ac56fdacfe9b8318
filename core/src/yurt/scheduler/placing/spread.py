"""Spread: the boost of a node for its value of an attribute (docs/explanation/placing.md).

Boosts are whole numbers of 1e-9. Nodes with equal values of all attributes are a cell: they always have the same boost.
What a value is worth depends on its *level*: for an even spread the number of allocations that it has, for targets the
value itself. A placement changes the level or the worth of one value, and now and then what all levels are worth, when
the least or the most count of an attribute changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from yurt.scheduler.feasibility.masks import property_codes
from yurt.scheduler.feasibility.node_cache import cached_answer
from yurt.scheduler.placing.terms.term import UNIT, TermKind
from yurt.state.arrays import IntArray, numbered
from yurt.state.store import Snapshot
from yurt.structs.constraint import Spread
from yurt.structs.job import Job, TaskGroup

ALLOCATION_SPREAD: Final = TermKind("allocation-spread")
IMPLICIT_TARGET = "*"
NO_VALUE = -1
"""The code and the level of nodes that lack the attribute."""


class CellNumbers(msgspec.Struct, frozen=True):
    """The combinations of values that occur: the cell of each row, and the code of each attribute for each cell."""

    numbers: IntArray
    of_row: list[int]
    codes: tuple[tuple[int, ...], ...]


class SpreadScore:
    """All spreads of a group."""

    def __init__(self, snapshot: Snapshot, job: Job, group: TaskGroup) -> None:
        spreads = (*group.spreads, *job.spreads)
        weight = sum(spread.weight for spread in spreads)
        self.parts = [_spread_part(snapshot, spread, group.count, weight_sum=weight) for spread in spreads]
        if self.parts:
            key = ("cells", tuple(spread.attribute for spread in spreads))
            cells = cached_answer(snapshot.columns.nodes, key, lambda: _number_cells([p.codes for p in self.parts]))
            assert isinstance(cells, CellNumbers)
            self.cells = cells

    @property
    def is_used(self) -> bool:
        """Whether the group has spreads."""
        return bool(self.parts)

    def boost(self, row: int) -> int:
        """The boost of one row."""
        return sum([part.boost(part.code_of_row[row]) for part in self.parts])

    def boosts(self) -> IntArray:
        """The boosts of all rows."""
        boosts: IntArray = sum((part.boosts()[part.codes] for part in self.parts), np.zeros(1, np.int64))
        return boosts

    def count(self, row: int, sign: int = 1) -> tuple[bool, ...]:
        """Count an allocation of the group on the row; returns for each spread whether the boosts of other values
        changed."""
        return tuple([part.count(part.code_of_row[row], sign) for part in self.parts])


class _SpreadPart(ABC):
    """The boosts of one spread.

    `levels` has the level of each value by its code, and last that of nodes without the attribute; `worths` what each
    level is worth.
    """

    levels: list[int]
    worths: dict[int, int] | list[int]

    def __init__(self, codes: IntArray, code_of_row: list[int], size: int) -> None:
        self.codes = codes
        self.code_of_row = code_of_row
        self.size = size

    def boosts(self) -> IntArray:
        """The boosts by code; the last one is for nodes without the attribute."""
        return np.array([self.worths[level] for level in self.levels], np.int64)

    def boost(self, code: int) -> int:
        """The boost of nodes with that value."""
        return self.worths[self.levels[code]]

    @abstractmethod
    def count(self, code: int, sign: int) -> bool:
        """Add or subtract an allocation with the value; returns whether the boosts of other levels changed."""


class _Even(_SpreadPart):
    """Even spread: equal counts for all values; the level is the count."""

    def __init__(self, codes: IntArray, code_of_row: list[int], size: int) -> None:
        super().__init__(codes, code_of_row, size)
        self.levels = [0] * size + [NO_VALUE]
        self.worths: _EvenWorths = _EvenWorths()
        self._numbers: dict[int, int] = {}
        """The number of values with each count of allocations above 0."""

    def count(self, code: int, sign: int) -> bool:
        if code < 0:
            return False
        old = self.levels[code]
        new = self.levels[code] = old + sign
        assert new >= 0, (code, old, sign, "only a counted allocation is removed")
        numbers = self._numbers
        if new > 0:
            numbers[new] = numbers.get(new, 0) + 1
        if old > 0:
            numbers[old] -= 1
            if not numbers[old]:
                del numbers[old]
        low, high = self.worths.range
        # The range is unchanged if another value still has the old count and the new one lies within: this avoids an
        # O(values) minimum.
        if low <= new <= high and (not old or old in numbers):
            return False
        return self.worths.follow((min(numbers), max(numbers)) if numbers else (0, 0))


class _EvenWorths(dict[int, int]):
    """The boost of each count, valid for one minimum and maximum (of counts above 0)."""

    def __init__(self) -> None:
        super().__init__({NO_VALUE: -UNIT})
        self.range = (0, 0)

    def follow(self, bounds: tuple[int, int]) -> bool:
        """Adopt a minimum and maximum; returns whether they changed."""
        if bounds == self.range:
            return False
        self.range = bounds
        self.clear()
        self[NO_VALUE] = -UNIT
        return True

    def __missing__(self, count: int) -> int:
        low, high = self.range
        if low <= 0:
            boost = 0
        elif count == low:
            boost = -UNIT if low == high else round((high - low) / low * UNIT)
        else:
            boost = round((low - count) / low * UNIT)
        self[count] = boost
        return boost


class _Targeted(_SpreadPart):
    """Targeted spread: a percentage per value; the level is its code."""

    def __init__(self, codes: IntArray, code_of_row: list[int], *, desired: list[float], weight: float) -> None:
        super().__init__(codes, code_of_row, len(desired))
        self._counts = [0] * len(desired)
        self._desired = desired
        self._weight = weight
        self._allowed_codes = [code for code, share in enumerate(desired) if share > 0]
        self._excluded_codes = [code for code, share in enumerate(desired) if share == 0]
        """Values with a target of 0 %, which get the minimum boost of all."""
        self.levels = [*range(len(desired)), NO_VALUE]
        self.worths: list[int] = [-UNIT] * (len(desired) + 1)
        for code in self._allowed_codes:
            self.worths[code] = self._worth(code)
        self._follow()

    def count(self, code: int, sign: int) -> bool:
        if code < 0:
            return False
        self._counts[code] += sign
        assert self._counts[code] >= 0, (code, sign, "only a counted allocation is removed")
        if self._desired[code] > 0:
            self.worths[code] = self._worth(code)
        return bool(self._excluded_codes) and self._follow()

    def _follow(self) -> bool:
        """Recompute the minimum boost, that of unwanted values; returns whether it changed."""
        before = [self.worths[code] for code in self._excluded_codes[:1]]
        least = min((-UNIT, *(self.worths[code] for code in self._allowed_codes)))
        for code in self._excluded_codes:
            self.worths[code] = least
        return before != [least]

    def _worth(self, code: int) -> int:
        desired = self._desired[code]
        return round((desired - self._counts[code] - 1) / desired * self._weight * UNIT)


def _spread_part(snapshot: Snapshot, spread: Spread, count: int, *, weight_sum: int) -> _SpreadPart:
    codes, values = property_codes(snapshot, spread.attribute)
    code_of_row = cached_answer(snapshot.columns.nodes, ("code of row", spread.attribute), codes.tolist)
    assert isinstance(code_of_row, list)
    if not spread.spread_target:
        return _Even(codes, code_of_row, len(values))
    desired_counts = {target.value: target.percent / 100 * count for target in spread.spread_target}
    rest = count - sum(desired_counts.values())
    implicit = desired_counts.get(IMPLICIT_TARGET, rest if 0 < rest < count else -1.0)
    desired = [desired_counts.get(value, implicit) for value in values]
    return _Targeted(codes, code_of_row, desired=desired, weight=spread.weight / weight_sum if weight_sum else 0.0)


def _number_cells(codes_of: Iterable[IntArray]) -> CellNumbers:
    cells, firsts = np.zeros(1, np.int64), np.zeros(0, np.int64)
    columns = list(codes_of)
    for codes in columns:
        mixed = cells * (int(codes.max(initial=0)) + 2) + codes + 1
        cells, firsts = numbered(mixed)
    return CellNumbers(cells, cells.tolist(), tuple(zip(*(codes[firsts].tolist() for codes in columns), strict=True)))
