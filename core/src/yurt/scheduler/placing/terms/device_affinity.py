"""Device affinity: the share of the device affinities that the devices granted by a node would meet."""

from __future__ import annotations

from typing import Final

import numpy as np

from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.terms.term import UNIT, ScoreTerm, TermContext, TermKind
from yurt.state.arrays import IntArray


class DeviceAffinity:
    """Computed from each node's grant of devices, which changes with every placement on it."""

    follows_placements: Final = True

    def __init__(self, context: TermContext) -> None:
        self._view, self._ask = context.view, context.ask
        self.name = DEVICE_AFFINITY.name
        self.counts_at_zero = context.ask.asks_affinities
        """True if affinities are requested: a node that meets none of them must score lower than without the term."""
        self.values: IntArray = np.zeros(len(context.view.offered), np.int64)

    def refresh(self, rows: BoolArray) -> None:
        """Evaluate these rows; all other rows are infeasible."""
        self.values[:] = 0
        for row in np.flatnonzero(rows).tolist():
            self.update(row)

    def update(self, row: int) -> None:
        """Evaluate one row."""
        self.values[row] = round(self._ask.device_score(self._view.node(row), self._view.in_use(row)) * UNIT)

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """Never called: placements with devices are made singly (`GroupPlacer.can_run`)."""
        raise AssertionError("a group with devices is not placed in runs")


def _device_affinity(context: TermContext) -> ScoreTerm | None:
    return DeviceAffinity(context) if context.ask.has_device_affinities else None


DEVICE_AFFINITY: Final = TermKind("devices", compares_nodes=False, make=_device_affinity)
