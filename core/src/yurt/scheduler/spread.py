"""Spread: the boost that a node gets for the value it has of an attribute (semantics 15)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from yurt.scheduler.feasible import property_codes
from yurt.state.store import Snapshot
from yurt.structs.constraint import Spread
from yurt.structs.job import Job, TaskGroup

FloatArray = npt.NDArray[np.float64]
IMPLICIT_TARGET = "*"


class SpreadScore:
    """All spreads of a group: one boost per cell, a cell being a combination of attribute values."""

    def __init__(self, snapshot: Snapshot, job: Job, group: TaskGroup) -> None:
        spreads = (*group.spreads, *job.spreads)
        weight = sum(spread.weight for spread in spreads)
        self._parts = [_Part(snapshot, spread, group.count, weight_sum=weight) for spread in spreads]
        if not self._parts:
            return
        stacked = np.stack([part.codes for part in self._parts], axis=1)
        self._cells, self.cell_of_row = np.unique(stacked, axis=0, return_inverse=True)
        self.cell_of_row = self.cell_of_row.reshape(-1)
        self._known: FloatArray | None = None

    @property
    def is_used(self) -> bool:
        """Whether the group spreads at all."""
        return bool(self._parts)

    def count(self, rows: Iterable[int], sign: int = 1) -> None:
        """Allocations of the group that are on these rows."""
        self._known = None
        for part in self._parts:
            part.count(rows, sign)

    def boosts(self) -> FloatArray:
        """The boost of each cell."""
        if self._known is not None:
            return self._known
        total = np.zeros(len(self._cells))
        for column, part in enumerate(self._parts):
            total += part.boosts()[self._cells[:, column]]
        self._known = total
        return total


class _Part:
    """One spread; boosts are indexed by value number, and by -1 for nodes without the attribute."""

    def __init__(self, snapshot: Snapshot, spread: Spread, count: int, *, weight_sum: int) -> None:
        self.codes, values = property_codes(snapshot, spread.attribute)
        self._counts = np.zeros(len(values) + 1)
        self._weight = spread.weight / weight_sum if weight_sum else 0.0
        self._desired = self._desired_counts(spread, values, count) if spread.spread_target else None
        self._numbers = {value: number for number, value in enumerate(values)}
        self._is_even = not spread.spread_target

    def count(self, rows: Iterable[int], sign: int) -> None:
        for row in rows:
            code = self.codes[row]
            if code >= 0:
                self._counts[code] += sign

    def boosts(self) -> FloatArray:
        boosts = self._even() if self._desired is None else self._targeted(self._desired)
        boosts[-1] = -1.0
        return boosts

    def _desired_counts(self, spread: Spread, values: tuple[str, ...], count: int) -> FloatArray:
        wanted = {target.value: target.percent / 100 * count for target in spread.spread_target}
        rest = count - sum(wanted.values())
        implicit = wanted.get(IMPLICIT_TARGET, rest if 0 < rest < count else -1.0)
        return np.array([*(wanted.get(value, implicit) for value in values), -1.0])

    def _targeted(self, desired: FloatArray) -> FloatArray:
        used = self._counts + 1
        boosts: FloatArray = (
            np.divide(desired - used, desired, out=np.full(len(desired), -1.0), where=desired > 0) * self._weight
        )
        boosts[desired < 0] = -1.0
        if (desired == 0).any():
            boosts[desired == 0] = min(-1.0, float(boosts.min()))
        return boosts

    def _even(self) -> FloatArray:
        counts = self._counts
        seen = counts[:-1][counts[:-1] > 0]
        if not len(seen):
            return np.zeros(len(counts))
        low, high = float(seen.min()), float(seen.max())
        at_low = -1.0 if low == high else (high - low) / low
        boosts: FloatArray = np.where(counts == low, at_low, (low - counts) / low)
        return boosts
