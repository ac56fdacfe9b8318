"""Suspect devices: nodes that would grant one to the group score lower.

The score is a mean, so the other terms may outweigh this one: an affinity for the node, a spread, how full nodes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from yurt.scheduler.devices.offers import suspects_of
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.feasibility.node_cache import answers_by_row
from yurt.scheduler.placing.terms.term import UNIT, ScoreTerm, TermContext, TermKind
from yurt.state.arrays import IntArray
from yurt.structs.node import Node

if TYPE_CHECKING:
    from yurt.scheduler.devices.suspects import SuspectQuestion


class SuspectDevices:
    """-1 where the grant of a node has a suspect device. Only nodes that have one are asked for their grants."""

    follows_placements: Final = True
    counts_at_zero: Final = False

    def __init__(self, context: TermContext, has_suspects: BoolArray, question: SuspectQuestion) -> None:
        self._view, self._has_suspects = context.view, has_suspects
        self._question = question
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
            has_suspect = self._question.grants_suspect(self._view.node(row), self._view.in_use(row).devices)
            self.values[row] = -UNIT if has_suspect else 0

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """Never called: placements with devices are made singly (`GroupPlacer.can_run`)."""
        raise AssertionError("a group with devices is not placed in runs")


def _have_suspects(nodes: list[Node]) -> list[bool]:
    return [bool(suspects_of(node)) for node in nodes]


def _suspect_devices(context: TermContext) -> ScoreTerm | None:
    if not context.ask.devices:
        return None
    has_suspects = answers_by_row(context.view.snapshot, "suspect devices", _have_suspects, without=False)
    if not has_suspects.any():
        return None
    # Few clusters have suspect devices: the others do without the module.
    from yurt.scheduler.devices.suspects import SuspectQuestion

    return SuspectDevices(context, has_suspects.astype(np.bool_), SuspectQuestion(context.ask.devices))


SUSPECT_DEVICES: Final = TermKind("suspect-devices", compares_nodes=False, make=_suspect_devices)
