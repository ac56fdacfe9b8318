"""Suspect devices: nodes that would grant one to the group come last."""

from __future__ import annotations

from typing import Final

import numpy as np

from yurt.scheduler.devices.offers import grant_devices, suspects_of
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.feasibility.node_cache import answers_by_row
from yurt.scheduler.placing.terms.term import UNIT, ScoreTerm, TermContext, TermKind
from yurt.sdk.device import device_of
from yurt.state.arrays import IntArray
from yurt.structs.node import Node


class SuspectDevices:
    """-1 where the grant of a node has a suspect device. Only nodes that have one are asked for their grants."""

    follows_placements: Final = True
    counts_at_zero: Final = False

    def __init__(self, context: TermContext, has_suspects: BoolArray) -> None:
        self._view, self._ask, self._has_suspects = context.view, context.ask, has_suspects
        self.name = SUSPECT_DEVICES.name
        self.values: IntArray = np.zeros(len(context.view.offered), np.int64)

    def refresh(self, rows: BoolArray) -> None:
        """Evaluate these rows; all others are infeasible."""
        self.values[:] = 0
        for row in np.flatnonzero(rows & self._has_suspects).tolist():
            self.update(row)

    def update(self, row: int) -> None:
        """Evaluate one row."""
        if self._has_suspects[row]:
            node = self._view.node(row)
            granted = grant_devices(node, self._view.in_use(row).devices, self._ask.devices)
            ids = {device_of(each) for _, device in granted[0] for each in device.device_ids} if granted else set()
            self.values[row] = 0 if ids.isdisjoint(suspects_of(node)) else -UNIT

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """Never called: placements with devices are made singly (`GroupPlacer.can_run`)."""
        raise AssertionError("a group with devices is not placed in runs")


def _have_suspects(nodes: list[Node]) -> list[bool]:
    return [bool(suspects_of(node)) for node in nodes]


def _suspect_devices(context: TermContext) -> ScoreTerm | None:
    if not context.ask.devices:
        return None
    found = answers_by_row(context.view.snapshot, "suspect devices", _have_suspects, without=False)
    return SuspectDevices(context, found.astype(np.bool_)) if found.any() else None


SUSPECT_DEVICES: Final = TermKind("suspect-devices", compares_nodes=False, make=_suspect_devices)
