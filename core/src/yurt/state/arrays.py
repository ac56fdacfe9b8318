"""Integer arrays: their types and operations on distinct values."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
TieArray = npt.NDArray[np.uint64]

SMALL_MAX: Final = (1 << 15) - 1
"""Numbers up to this are sorted by their digits, which takes a fraction of the time."""
FEW: Final = 64
"""Up to this number of values, counting them one by one is faster."""
DENSE: Final = 64
"""Numbers up to this multiple of their count are counted without sorting."""


def numbered(values: IntArray) -> tuple[IntArray, IntArray]:
    """The rank of each value among the distinct values, and the first index of each distinct value.

    As numpy's `unique`, which is not used: its first call imports a part of numpy that nothing else needs, for 60 ms.
    """
    order = order_of(values)
    in_order = values[order]
    is_first = np.ones(len(values), np.bool_)
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    numbers: IntArray = np.empty(len(values), np.int64)
    numbers[order] = np.cumsum(is_first) - 1
    return numbers, order[is_first]


def order_of(values: IntArray | TieArray) -> IntArray:
    """The indices of the values in ascending order; stable."""
    is_small = len(values) and values.min() >= 0 and values.max() <= SMALL_MAX
    order: IntArray = np.argsort(values.astype(np.int16) if is_small else values, kind="stable")
    return order


def tally(values: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct values in ascending order, and the number of each; values must not be negative."""
    if len(values) * DENSE < values.max(initial=0):
        numbers, firsts = numbered(values)
        return values[firsts], np.bincount(numbers)
    times = np.bincount(values)
    present = times.nonzero()[0]
    return present, times[present]


def distinct(values: IntArray) -> list[int]:
    """The distinct values of ascending, non-negative ones."""
    if len(values) <= FEW:
        return list(dict.fromkeys(values.tolist()))
    present: list[int] = np.flatnonzero(np.bincount(values)).tolist()
    return present
