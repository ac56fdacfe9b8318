"""The best k of many scores without a full sort.

Most scores are often equal (those of nodes that are alike), and for those numpy's `partition` takes twenty times as
long as for different ones. The maxima of blocks give a bound that at least k scores reach; only these are sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from yurt.scheduler.ids import Ties
from yurt.state.arrays import IntArray, TieArray

IMPOSSIBLE = -np.inf
BLOCKS_MIN, BLOCKS_EACH = 64, 4
"""The number of blocks examined: a few times the number of wanted scores."""


def best_rows(scores: npt.NDArray[np.float64], ties: Ties | TieArray, size: int) -> tuple[IntArray, bool]:
    """The `size` best rows with capacity, unordered, and whether these are all rows with capacity."""
    size = min(size, len(scores))
    if not size:
        return np.zeros(0, np.int64), True
    least = nth_highest(scores, size)
    if least == IMPOSSIBLE:
        return np.flatnonzero(scores != IMPOSSIBLE), True
    better, equal = (scores > least).nonzero()[0], (scores == least).nonzero()[0]
    missing = size - len(better)
    # Tie-breakers decide between equals: the order of the rows differs between servers.
    if missing < len(equal):
        equal = equal[_lowest(ties[equal], missing)]
    assert len(better) + len(equal) == size, (len(better), len(equal), size)
    return np.concatenate((better, equal)), False


def nth_highest(scores: npt.NDArray[np.float64], number: int) -> float:
    """The k-th highest score."""
    assert 0 < number <= len(scores), (number, len(scores))
    maxima = _over_blocks(np.maximum, scores, number)
    candidates = scores if maxima is None else scores[scores >= maxima[len(maxima) - number]]
    return float(np.sort(candidates, kind="stable")[len(candidates) - number])


def _lowest(ties: TieArray, number: int) -> IntArray:
    """The indices of the lowest tie-breakers."""
    minima = _over_blocks(np.minimum, ties, number)
    if minima is None:
        return np.argsort(ties)[:number]
    places = (ties <= minima[number - 1]).nonzero()[0]
    lowest: IntArray = places[np.argsort(ties[places])[:number]]
    return lowest


def _over_blocks(which: np.ufunc, values: npt.NDArray[Any], number: int) -> npt.NDArray[Any] | None:
    """The highest (or lowest) of each block, sorted; None for too few values."""
    blocks = max(BLOCKS_MIN, BLOCKS_EACH * number)
    length = len(values) // blocks
    if length <= 1:
        return None
    reduced: npt.NDArray[Any] = np.sort(which.reduce(values[: length * blocks].reshape(length, blocks), axis=0))
    return reduced
