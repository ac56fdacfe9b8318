"""Ranking: scores of all nodes as arrays, updated only where a placement changes them.

A node's score is the mean of the terms that count for it (`terms`). Terms are whole numbers of 1e-9, kept as a sum and
a number per row, so that scores are exact quotients and compare alike everywhere; equal ones are ordered by a hash
of node id and seed, never by row. Without spreads a placement changes the score of its own node alone: the best rows
are kept in a small sorted window, and a run of equal placements is ordered at once (`runs`). With spreads the best rows
are kept per cell (`cells`). docs/explanation/placing.md shows both with their costs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.ids import Ties
from yurt.scheduler.placing.cells import Cells
from yurt.scheduler.placing.exhausted_nodes import ExhaustedCounts, ExhaustedNodes
from yurt.scheduler.placing.fitness import FitnessTable
from yurt.scheduler.placing.open_rows import OpenRows
from yurt.scheduler.placing.score_arrays import ScoreArrays
from yurt.scheduler.placing.score_tables import ScoreTables
from yurt.scheduler.placing.spread import SpreadScore
from yurt.scheduler.placing.terms.group_terms import GroupTerms
from yurt.scheduler.placing.terms.term import FloatArray, TermContext
from yurt.scheduler.placing.top_k import IMPOSSIBLE, best_rows
from yurt.scheduler.placing.window import WINDOW_MAX, WINDOW_MIN, Window
from yurt.state.arrays import IntArray
from yurt.structs.explain.metrics import NodeScoreMeta
from yurt.structs.job import Job, TaskGroup

SCORES_MAX: Final = 5
STALE: Final = -1
"""A generation that no view has, so that all rows are scored before the next placement."""


class RankOptions(msgspec.Struct, frozen=True):
    """The ranking options of an attempt."""

    is_spread_algorithm: bool
    salt: int


class SetAsideRows(NamedTuple):
    """Rows that are left out of the ranking for a while, with their scores."""

    rows: IntArray
    scores: FloatArray


class Ranker:
    """The scores of all nodes for one group."""

    def __init__(
        self, view: ClusterView, job: Job, group: TaskGroup, ask: GroupAsk, *, mask: BoolArray, options: RankOptions
    ) -> None:
        self.view = view
        self.ask = ask
        self.terms = GroupTerms(TermContext(view, job, group, ask), prefers_empty=options.is_spread_algorithm)
        self.exhausted = ExhaustedNodes(view, ask.plain.usage, mask)
        """The feasible rows without capacity, with their counts."""
        self.ties = Ties(view.rows.ties, options.salt)
        self.spread = SpreadScore(view.snapshot, job, group)
        self.own: IntArray = np.zeros(len(mask), np.int64)
        """The number of the group's allocations on each row; changed in place, because the parts below share it."""
        self._own_rows: set[int] = set()
        """The rows that have, or had, allocations of the group."""
        self._fitness = FitnessTable(view, ask, self.terms.binpack)
        self._arrays = ScoreArrays(self.terms, self.spread, self.own)
        self.tables = ScoreTables(view, self.terms, self.spread, fitness=self._fitness, own=self.own)
        self._open = OpenRows(mask)
        self._cells: Cells | None = None
        self._window = Window()
        self._generation = STALE
        """The generation of the view for which the scores are valid."""

    @property
    def scores(self) -> FloatArray:
        """Means of the parts without spreads and penalties; minus infinity for rows without capacity."""
        return self._arrays.scores

    def count_own(self, rows: list[int], sign: int = 1) -> None:
        """Count allocations of the same job and group on these rows."""
        self.tables.clear()
        self._own_rows.update(rows)
        for row in rows:
            self.own[row] += sign
            if self.spread.is_used:
                self.spread.count(row, sign)
        self._generation = STALE

    def reopen(self) -> None:
        """Reopen and rescore all rows after a change of usage other than by `placed`."""
        self._open.reopen()
        self.exhausted.reopen()
        self.tables.clear()
        self._generation = STALE

    def restart(self, expected: int) -> None:
        """Continue for another job without allocations: earlier placements count only as usage.

        `expected` placements of the new job will follow.
        """
        rows, self._own_rows = sorted(self._own_rows), set()
        # Only the rows that were placed on: the array has a row for each node of the cluster.
        for row in rows:
            self.own[row] = 0
        if self._generation != self.view.generation:
            return
        for row in rows:
            self._score_row(row)
        if len(self._window.entries) < _window_size(expected):
            self._window.entries = []

    # -- the inner loop: best, top, placed -------------------------------------------------------------------------

    def best(
        self, *, expected: int = 1, penalised: frozenset[int] = frozenset(), preferred: int | None = None
    ) -> int | None:
        """The best row, or None. `expected` more placements of the same kind will follow."""
        if self._generation != self.view.generation:
            self._score_all()
        # The node with the allocation's sticky disk is chosen if it has capacity, whatever the scores of others.
        if preferred is not None and self._arrays.scores[preferred] != IMPOSSIBLE:
            return preferred
        # Penalties apply to one placement only, so they are added to a copy and never to the cached scores.
        if penalised:
            return _best_of(self._arrays.combined(penalised, self._fitness), self.ties)
        if self._cells is not None:
            return self._cells.best()
        window = self._window
        if not window.entries:
            window.fill(self._arrays.scores, self.ties, _window_size(expected))
        return window.entries[0][2] if window.entries else None

    def refresh(self) -> None:
        """Rescore all rows after a change of usage other than by `placed`."""
        if self._generation != self.view.generation:
            self._score_all()

    def counts(self) -> ExhaustedCounts:
        """The counts of exhausted feasible rows, for a refreshed ranker without closed rows."""
        exhausted = self.exhausted
        if exhausted.counts is None:
            is_of_state = self.view.generation == 0 and self._open.mask is self._open.feasible
            exhausted.count(self._arrays.scores == IMPOSSIBLE, is_of_state=is_of_state)
        assert exhausted.counts is not None
        return exhausted.counts

    def close(self, row: int) -> None:
        """Exclude a row for this group."""
        self._open.close(row)
        self._arrays.scores[row] = IMPOSSIBLE
        self._window.remove(row)
        if self._cells is not None:
            self._cells.remove(row)

    def close_all(self, mask: BoolArray) -> None:
        """Exclude rows for this group."""
        if self._open.close_all(mask):
            self._generation = STALE

    @property
    def can_set_aside(self) -> bool:
        """Whether rows keep their scores while others are placed on: there is no spread."""
        return self._cells is None

    def set_aside(self, rows: IntArray) -> SetAsideRows | None:
        """Leave rows out until `pass_over` closes them or `bring_back` ranks them again; None without any."""
        assert self.can_set_aside, "with spreads each placement changes the scores of others"
        scores = self._arrays.scores
        rows = rows[scores[rows] != IMPOSSIBLE]
        if not len(rows):
            return None
        aside = SetAsideRows(rows, scores[rows])
        scores[rows] = IMPOSSIBLE
        self._window.entries = []
        return aside

    def pass_over(self, aside: SetAsideRows, best: int | None) -> tuple[IntArray, SetAsideRows]:
        """Close the rows that rank before the best of the others; returns them, and those that remain set aside."""
        rows, scores = aside
        if best is None:
            is_better = np.ones(len(rows), np.bool_)
        else:
            score, tie = self._arrays.scores[best], self.ties[np.asarray([best])][0]
            is_better = (scores > score) | ((scores == score) & (self.ties[rows] < tie))
        passed = rows[is_better]
        if len(passed):
            mask = np.zeros(len(self.own), np.bool_)
            mask[passed] = True
            self._open.close_all(mask)
        return passed, SetAsideRows(rows[~is_better], scores[~is_better])

    def bring_back(self, aside: SetAsideRows) -> None:
        """Rank the rows again that were set aside."""
        if len(aside.rows):
            self._arrays.scores[aside.rows] = aside.scores
            self._window.entries = []

    def fill_window(self, expected: int) -> None:
        """Have the runners-up at hand again after rows were closed or set aside."""
        if self._cells is None and len(self._window.entries) < SCORES_MAX and not self._window.has_all:
            self._window.fill(self._arrays.scores, self.ties, _window_size(expected))

    def placed(self, row: int) -> None:
        """Update after a placement of this group on the row."""
        self.own[row] += 1
        self._own_rows.add(row)
        changed = self.spread.count(row) if self.spread.is_used else ()
        if not self._open.mask[row]:
            self._open.open(row)
        if self._generation != STALE:
            self._score_row(row)
            if self._cells is not None:
                self._cells.placed(row, changed)
            self._generation = self.view.generation

    def placed_run(self, rows: IntArray) -> None:
        """Update after a run's placements, one for each occurrence of a row."""
        np.add.at(self.own, rows, 1)
        self._own_rows.update(rows.tolist())
        self.tables.clear()
        self._generation = STALE

    def top(self, chosen: int, penalised: frozenset[int] = frozenset()) -> tuple[NodeScoreMeta, ...]:
        """The scores of the chosen row and of the runners-up."""
        if penalised:
            scores = self._arrays.combined(penalised, self._fitness)
            rows, _ = best_rows(scores, self.ties, SCORES_MAX)
            entries = sorted((-float(scores[row]), self.ties.of(row), row) for row in rows.tolist())
            others = [entry[2] for entry in entries if entry[2] != chosen][: SCORES_MAX - 1]
            return tuple(self.tables.meta(row, penalised) for row in (chosen, *others))
        if self._cells is not None:
            best = self._cells.top()
            if not best or best[0][0] != chosen:
                others = [entry for entry in best if entry[0] != chosen]
                best = [(chosen, self.spread.boost(chosen)), *others[: SCORES_MAX - 1]]
            return self.tables.boosted(best, self._arrays.binpacks)
        shown = [entry[2] for entry in self._window.entries[:SCORES_MAX]]
        if chosen not in shown[:1]:
            shown = [chosen, *[row for row in shown if row != chosen][: SCORES_MAX - 1]]
        return self.tables.entries(shown)

    def _score_all(self) -> None:
        fits, arrays = self._fitness.of_all(), self._arrays
        has_capacity = self._open.mask & fits.has_capacity
        self._window.entries, self._generation = [], self.view.generation
        self.exhausted.forget(fits.counts)
        self.tables.start(fits.binpacks)
        arrays.refresh(fits, has_capacity, has_own=bool(self._own_rows))
        assert len(arrays.scores) == len(has_capacity) == len(self.own), (
            len(arrays.scores),
            len(has_capacity),
            len(self.own),
        )
        if self.spread.is_used:
            rows = np.flatnonzero(has_capacity)
            self._cells = Cells(self.spread, self.ties, rows, sums=arrays.sums, counts=arrays.counts, limit=SCORES_MAX)

    def _score_row(self, row: int) -> None:
        self.tables.forget(row)
        binpack, has_capacity = self._fitness.of_row(row)
        if not has_capacity:
            # Counted as exhausted once, when it fills up; a row that was closed before is counted already.
            if self._arrays.scores[row] != IMPOSSIBLE:
                self.exhausted.fill(row)
            self.close(row)
            return
        for term in self.terms.following:
            term.update(row)
        _, total, count = self.tables.parts(row, binpack)
        arrays = self._arrays
        if len(arrays.sums):
            arrays.sums[row], arrays.counts[row] = total, count
        score = arrays.scores[row] = total / count
        if self._cells is not None:
            arrays.binpacks[row] = binpack
            self._cells.move(row, total, count)
        elif self._window.entries:
            self._window.move((-score, self.ties.of(row), row))


def _best_of(scores: FloatArray, ties: Ties) -> int | None:
    if not len(scores):
        return None
    best = scores.max()
    if best == IMPOSSIBLE:
        return None
    rows = np.flatnonzero(scores == best)
    return int(rows[np.argmin(ties[rows])])


def _window_size(expected: int) -> int:
    """The number of best rows that are kept sorted."""
    return min(WINDOW_MAX, max(WINDOW_MIN, expected + SCORES_MAX))
