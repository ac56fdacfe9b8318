"""Job anti-affinity: minus (allocations of the group on the node, plus one) divided by the group's count."""

from __future__ import annotations

from typing import Final

import numpy as np

from yurt.scheduler.placing.terms.term import UNIT, TermKind
from yurt.state.arrays import IntArray

JOB_ANTI_AFFINITY: Final = TermKind("job-anti-affinity", is_always_shown=True)


class JobAntiAffinity:
    """The term, which counts on nodes with allocations of the group (docs/explanation/placing.md)."""

    def __init__(self, count: int) -> None:
        self._count = max(1, count)

    def of_rows(self, own: IntArray) -> IntArray:
        """The values of rows with these numbers of allocations of the group."""
        return np.where(own > 0, -np.rint((own + 1) / self._count * UNIT), 0).astype(np.int64)

    def of_row(self, own: int) -> int:
        """The value of one row."""
        return -round((own + 1) / self._count * UNIT) if own else 0
