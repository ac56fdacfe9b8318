"""A ring of samples in arrays: 8 bytes for the time of each sample, 4 or 8 for each of its figures."""

from __future__ import annotations

import math
from array import array
from typing import Final, Literal

SAMPLES_MAX: Final = 90


class SampleRing:
    """The last samples of some columns, with NaN for missing figures. Times are in ns since 1970."""

    def __init__(self, columns: int, *, samples_max: int = SAMPLES_MAX, kind: Literal["d", "f"] = "d") -> None:
        self.at: array[int] = array("q")
        self.columns = tuple(array(kind) for _ in range(columns))
        self._samples_max = samples_max

    def add(self, at: int, *values: float | None) -> None:
        """Add a sample and drop the oldest beyond the bound."""
        self.at.append(at)
        for column, value in zip(self.columns, values, strict=True):
            column.append(math.nan if value is None else value)
        if len(self.at) > self._samples_max:
            del self.at[0]
            for column in self.columns:
                del column[0]

    def column(self, number: int) -> tuple[float | None, ...]:
        """The values of a column, oldest first, None for a missing one."""
        return tuple(None if math.isnan(value) else value for value in self.columns[number])

    def row(self, position: int) -> tuple[float | None, ...]:
        """The values of one sample."""
        return tuple(None if math.isnan(column[position]) else column[position] for column in self.columns)
