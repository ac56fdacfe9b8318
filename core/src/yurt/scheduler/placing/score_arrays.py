"""The scores of all rows as arrays: the sum and the number of each row's parts, and their mean."""

from __future__ import annotations

from typing import Final

import numpy as np

from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.fitness import Fitness, FitnessTable
from yurt.scheduler.placing.spread import SpreadScore
from yurt.scheduler.placing.terms.group_terms import GroupTerms
from yurt.scheduler.placing.terms.reschedule_penalty import PENALTY
from yurt.scheduler.placing.terms.term import FloatArray
from yurt.scheduler.placing.top_k import IMPOSSIBLE
from yurt.state.arrays import IntArray

NO_AMOUNTS: Final[IntArray] = np.zeros(0, np.int64)


class ScoreArrays:
    """The arrays of one group; `own`, the group's allocations on each row, is maintained by the ranker."""

    def __init__(self, terms: GroupTerms, spread: SpreadScore, own: IntArray) -> None:
        self._terms = terms
        self._spread = spread
        self._own = own
        self.binpacks = NO_AMOUNTS
        """The fitness of all rows, under spreads."""
        self.sums = self.counts = NO_AMOUNTS
        """Sums and numbers of the parts; not computed if the fitness is the only part."""
        self.scores: FloatArray = np.zeros(0)
        """Means of the parts without spreads and penalties; minus infinity for rows without capacity."""

    def refresh(self, fits: Fitness, has_capacity: BoolArray, *, has_own: bool) -> None:
        """Score all rows; those without capacity get minus infinity."""
        if not (has_own or self._spread.is_used or self._terms.others):
            self.sums = self.counts = NO_AMOUNTS
            self.scores = np.where(has_capacity, fits.binpacks, IMPOSSIBLE)
            return
        self._sum_up(fits, has_capacity)
        self.scores = np.where(has_capacity, self.sums / self.counts, IMPOSSIBLE)
        if self._spread.is_used:
            self.binpacks = fits.binpacks.copy()

    def combined(self, penalised: frozenset[int], fitness: FitnessTable) -> FloatArray:
        """All scores including penalties and spreads."""
        rows = np.fromiter(penalised, np.int64)
        if not len(self.sums):
            self._sum_up(fitness.of_all(), self.scores != IMPOSSIBLE)
        sums, counts = self.sums.copy(), self.counts.copy()
        sums[rows] += PENALTY
        counts[rows] += 1
        if self._spread.is_used:
            boosts = self._spread.boosts()
            sums += boosts
            counts += boosts != 0
        scores: FloatArray = np.where(self.scores == IMPOSSIBLE, IMPOSSIBLE, sums / counts)
        return scores

    def _sum_up(self, fits: Fitness, has_capacity: BoolArray) -> None:
        """Sum the parts of all rows without spreads and penalties."""
        sums, counts = fits.binpacks.copy(), np.ones(len(has_capacity), np.int64)
        mates = np.flatnonzero(self._own)
        sums[mates] += self._terms.anti_affinity.of_rows(self._own[mates])
        counts[mates] += 1
        for term in self._terms.following:
            term.refresh(has_capacity)
        self._terms.evaluated = self._terms.others
        for term in self._terms.others:
            sums += term.values
            counts += 1 if term.counts_at_zero else term.values != 0
        self.sums, self.counts = sums, counts
