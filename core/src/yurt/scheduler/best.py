"""The best of many scores without sorting them all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from yurt.scheduler.ids import Ties
from yurt.state.columns import IntArray, TieArray

IMPOSSIBLE = -np.inf


def best_rows(scores: npt.NDArray[np.float64], ties: Ties | TieArray, size: int) -> tuple[IntArray, bool]:
    """The `size` best rows that have room, in no order, and whether these are all of them."""
    size = min(size, len(scores))
    if not size:
        return np.zeros(0, np.int64), True
    least = float(np.partition(scores, len(scores) - size)[len(scores) - size])
    if least == IMPOSSIBLE:
        return np.flatnonzero(scores != IMPOSSIBLE), True
    better, equal = (scores > least).nonzero()[0], (scores == least).nonzero()[0]
    wanted = size - len(better)
    if wanted < len(equal):
        equal = equal[np.argpartition(ties[equal], wanted - 1)[:wanted]]
    return np.concatenate((better, equal)), False
