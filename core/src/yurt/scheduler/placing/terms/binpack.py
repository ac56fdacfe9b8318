"""Bin packing: the fullness of a node's CPU and memory with one more allocation; with algorithm `spread`, emptiness."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from yurt.scheduler.placing.terms.term import UNIT, FloatArray, TermKind
from yurt.state.arrays import IntArray
from yurt.state.columns import CPU, MEMORY
from yurt.state.usage import Usage

BINPACK: Final = TermKind("binpack", counts_at_zero=True, is_always_shown=True, compares_nodes=False)
LN10 = math.log(10.0)


class Binpack:
    """The fitness of rows for one request, in units of 1e-9 (docs/explanation/placing.md)."""

    def __init__(self, usage: Usage, *, prefers_empty: bool) -> None:
        self._usage = usage
        self.prefers_empty = prefers_empty

    def of_rows(self, used: IntArray, offered: IntArray, more: IntArray | int = 1) -> IntArray:
        """The fitness of rows with `more` placements in addition to the present usage."""
        required = self._usage.amounts
        total = _power(used[..., CPU] + more * required[CPU], offered[..., CPU])
        total += _power(used[..., MEMORY] + more * required[MEMORY], offered[..., MEMORY])
        raw = total - 2 if self.prefers_empty else 20 - total
        fitness: IntArray = np.rint(np.clip(raw, 0, 18) * (UNIT / 18)).astype(np.int64)
        return fitness

    def of_row(self, used: list[int], offered: list[int], core_mhz: int) -> int:
        """The fitness of one row with one more placement; equal to `of_rows`, without arrays."""
        required = self._usage
        total = _power_of(used[CPU] + required.cpu + core_mhz, offered[CPU]) + _power_of(
            used[MEMORY] + required.memory, offered[MEMORY]
        )
        raw = total - 2 if self.prefers_empty else 20 - total
        return round(min(18.0, max(0.0, raw)) * (UNIT / 18))


def _power(used: IntArray, offered: IntArray) -> FloatArray:
    """10 to the power of the free share."""
    share: FloatArray = used / np.maximum(offered, 1)
    if not offered.all():
        share = np.where(offered > 0, share, 1.0)
    power: FloatArray = np.exp((1 - share) * LN10)
    return power


def _power_of(used: int, offered: int) -> float:
    return math.exp((1 - used / offered) * LN10) if offered > 0 else 1.0
