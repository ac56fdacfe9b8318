"""Chooses a node for preemption: the one with the least important victims, when no node has capacity.

To score a node is to choose its victims, which costs far more than ranking it. So scores are kept until something
changes on the node, and nodes in equal situations share one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk, NodeGrant
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.preemption import (
    PREEMPTION,
    is_allowed,
    lost_work_of,
    preempt,
    preemption_score,
    situation,
)
from yurt.scheduler.placing.ranking import Ranker
from yurt.scheduler.placing.terms.term import UNIT, FloatArray
from yurt.scheduler.placing.top_k import IMPOSSIBLE, best_rows
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import NodeScoreMeta
from yurt.structs.job import Job, TaskGroup

if TYPE_CHECKING:
    from yurt.scheduler.placing.reclaim import ReclaimedNode, ReclaimSearch


class Preempted(msgspec.Struct, frozen=True):
    """A node and its grant after preemption; `impossible` are the rows without sufficient victims."""

    row: int
    grant: NodeGrant
    victims: tuple[Allocation, ...]
    meta: NodeScoreMeta
    impossible: BoolArray


class PreemptionChoice:
    """Chooses a node for one group."""

    def __init__(self, view: ClusterView, job: Job, group: TaskGroup, *, ask: GroupAsk, ranker: Ranker) -> None:
        self._view = view
        self._job = job
        self._group = group
        self._ask = ask
        self._ranker = ranker
        self._scores: FloatArray | None = None
        """The known preemption scores by row, NaN elsewhere; None without one: most jobs preempt nothing."""
        self._situations: dict[Hashable, float] = {}
        self._reclaims: ReclaimSearch | None = None
        """The search among borrowers, created when a placement found no free capacity."""

    def restart(self, job: Job, group: TaskGroup) -> None:
        """Continue for an equal group of another job."""
        self._job, self._group = job, group
        self.forget_all()
        self.forget_borrowers()
        self._situations.clear()

    def forget(self, rows: int | Sequence[int]) -> None:
        """Drop the results of changed rows."""
        if self._scores is not None:
            self._scores[rows] = np.nan

    def forget_all(self) -> None:
        """Drop all results."""
        self._scores = None

    def forget_borrowers(self) -> None:
        """Drop the results of the search among borrowers."""
        self._reclaims = None

    def reclaim(
        self, mask: BoolArray, *, exceeds: Callable[[NodeGrant, Sequence[Allocation]], bool], salt: int
    ) -> ReclaimedNode | None:
        """The best row for a job within its guarantee, with its victims released in the view."""
        if self._reclaims is None:
            from yurt.scheduler.placing.reclaim import ReclaimSearch

            self._reclaims = ReclaimSearch(self._view, self._ask, exceeds=exceeds)
        return self._reclaims.best(mask, salt=salt)

    @property
    def is_allowed(self) -> bool:
        """Whether the job may preempt."""
        return is_allowed(self._view, self._job)

    def best(self, mask: BoolArray, salt: int) -> Preempted | None:
        """The best of some rows, with its victims released in the view; None when no victims suffice."""
        known = self._scores
        if known is None:
            known = self._scores = np.full(len(self._ranker.own), np.nan)
        for row in np.flatnonzero(mask & np.isnan(known)).tolist():
            known[row] = self._score(row, salt)
        scores = np.where(mask, known, IMPOSSIBLE)
        rows, _ = best_rows(scores, self._ranker.ties, 1)
        while len(rows) and self._view.guarantees is not None:
            # Others hold less of their guarantees after each preemption: a score may have become worse since it was
            # computed.
            row = int(rows[0])
            again = self._score(row, salt)
            if again == scores[row]:
                break
            known[row] = scores[row] = again
            rows, _ = best_rows(scores, self._ranker.ties, 1)
        if not len(rows):
            return None
        row = int(rows[0])
        choice = self.on_row(row, salt)
        assert choice is not None, "a row with a score has victims"
        grant, victims = choice
        tables = self._ranker.tables
        tables.forget(row)
        meta = tables.meta(row)
        shown = {**meta.scores, PREEMPTION.name: self._victims_score(victims)}
        meta = replace(meta, scores=shown, norm_score=float(scores[row]))
        return Preempted(row, grant, victims, meta, scores == IMPOSSIBLE)

    def on_row(self, row: int, salt: int) -> tuple[NodeGrant, tuple[Allocation, ...]] | None:
        """A row's grant and victims, which are released in the view; None when no victims suffice."""
        return preempt(self._view, self._job, self._group, self._ask, row=row, salt=salt)

    def _victims_score(self, victims: tuple[Allocation, ...]) -> float:
        return preemption_score(victims, sum(lost_work_of(self._view, victims).values()))

    def _score(self, row: int, salt: int) -> float:
        """The preemption score of a row; minus infinity if preemption is impossible."""
        ranker = self._ranker
        key = situation(self._view, self._job, self._ask, row)
        meta_key = None if key is None else (key, int(ranker.own[row]), ranker.tables.extras(row))
        if meta_key is not None and meta_key in self._situations:
            return self._situations[meta_key]
        score = IMPOSSIBLE
        choice = self.on_row(row, salt)
        if choice is not None:
            ranker.tables.forget(row)
            scores = ranker.tables.meta(row).scores
            parts = [value for name, value in scores.items() if ranker.terms.is_counted(name, value)]
            parts.append(self._victims_score(choice[1]))
            score = round(sum(parts) / len(parts) * UNIT) / UNIT
            # Only the score is needed: the victims are restored, and the row is unchanged.
            for victim in choice[1]:
                self._view.restore(victim)
            ranker.tables.forget(row)
        if meta_key is not None:
            self._situations[meta_key] = score
        return score
