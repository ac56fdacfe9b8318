"""Ranking: every node scored as arrays, and a placement updates only what it changes (semantics 14, 15).

A node's score is the mean of the parts that apply to it. The parts are kept as a sum and a number per row. Without
spreads a placement changes the score of its own node alone, so the best rows are kept in a small sorted window and
the arrays are scanned again only when it runs out; with spreads all scores are computed anew from one boost per cell.
Scores are compared after rounding to 1e-9, and equal ones by a hash of node id and seed, never by row.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from yurt.scheduler.ask import Ask
from yurt.scheduler.feasible import BoolArray, check_mask, constraint_check
from yurt.scheduler.ids import mix
from yurt.scheduler.spread import FloatArray, SpreadScore
from yurt.scheduler.view import DIMENSIONS, View
from yurt.state.columns import ALLOCS, CPU, MEMORY, IntArray, TieArray
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job, TaskGroup
from yurt.structs.metrics import NodeScoreMeta

ROUND = 9
SCORES_KEPT = 5
WINDOW_MIN, WINDOW_MAX = 16, 256
IMPOSSIBLE = -np.inf

Entry = tuple[float, int, int]
"""(negative score, tie, row): the smallest is the best."""


class RankOptions(NamedTuple):
    """How an attempt ranks."""

    is_spread_algorithm: bool
    salt: int


class Ranker:
    """Scores of all nodes for one group."""

    def __init__(
        self, view: View, job: Job, group: TaskGroup, ask: Ask, *, mask: BoolArray, options: RankOptions
    ) -> None:
        self.view = view
        self.group = group
        self.ask = ask
        self._is_spread_algorithm = options.is_spread_algorithm
        self._feasible = mask
        self._open = mask.copy()
        self._ties: TieArray = mix(view.rows.ties, options.salt)
        self._affinity = _affinities(view, job, group)
        self._own = np.zeros(len(mask), np.int64)
        self._spread = SpreadScore(view.snapshot, job, group)
        self._devices: FloatArray | None = None
        self._window: list[Entry] = []
        self._bound: Entry = (np.inf, 0, 0)
        self._is_stale = True
        self._generation = -1
        self._known: tuple[frozenset[int], FloatArray] | None = None
        self._memo: dict[tuple[int, int, int, int], float] = {}
        self._metas: dict[int, NodeScoreMeta] = {}
        """Rows of the score table that still hold; shared by all placements that show them."""
        self._sums: FloatArray = np.zeros(0)
        self._counts: IntArray = np.zeros(0, np.int64)
        self._scores: FloatArray = np.zeros(0)

    @property
    def own(self) -> IntArray:
        """How many allocations of the group each row has."""
        return self._own

    def count_own(self, rows: list[int], sign: int = 1) -> None:
        """Allocations of the same job and group that are on these rows."""
        for row in rows:
            self._own[row] += sign
        if self._spread.is_used:
            self._spread.count(rows, sign)
        self._is_stale = True

    def reopen(self) -> None:
        """What is used changed by other means than `placed`: open all rows and score them anew."""
        self._open = self._feasible.copy()
        self._is_stale = True

    def best(
        self, *, expected: int = 1, penalised: frozenset[int] = frozenset(), preferred: int | None = None
    ) -> int | None:
        """The row to place on, or None. `expected` more placements of the same kind are to come."""
        if self._is_stale or self._generation != self.view.generation:
            self._score_all()
        if preferred is not None and self._scores[preferred] != IMPOSSIBLE:
            return preferred
        if penalised or self._spread.is_used:
            return self._best_of(self._combined(penalised))
        if not self._window:
            self._fill(min(WINDOW_MAX, max(WINDOW_MIN, expected + SCORES_KEPT)))
        return self._window[0][2] if self._window else None

    def close(self, row: int) -> None:
        """The row cannot take any further placement of this group."""
        self._open[row] = False
        self._known = None
        self._scores[row] = IMPOSSIBLE
        self._window = [entry for entry in self._window if entry[2] != row]

    def close_all(self, mask: BoolArray) -> None:
        """None of these rows can take a further placement of this group."""
        self._open &= ~mask
        self._is_stale = True

    def placed(self, row: int) -> None:
        """A placement of this group went to the row."""
        self._own[row] += 1
        if self._spread.is_used:
            self._spread.count((row,))
        if not self._is_stale:
            self._score_row(row)
            self._generation = self.view.generation

    def top(self, chosen: int, penalised: frozenset[int] = frozenset()) -> tuple[NodeScoreMeta, ...]:
        """The scores of the chosen row and the next best."""
        if penalised or self._spread.is_used:
            scores = self._combined(penalised)
            kept = min(SCORES_KEPT, len(scores))
            rows = np.argpartition(-scores, kept - 1)[:kept].tolist() if kept else []
            entries = sorted(
                (-float(scores[row]), int(self._ties[row]), row) for row in rows if scores[row] != IMPOSSIBLE
            )
        else:
            entries = self._window[:SCORES_KEPT]
        found = [entry[2] for entry in entries if entry[2] != chosen][: SCORES_KEPT - 1]
        if penalised or self._spread.is_used:
            return tuple(self.meta(row, penalised) for row in (chosen, *found))
        metas = self._metas
        return tuple(metas.get(row) or self._remember(row) for row in (chosen, *found))

    def _remember(self, row: int) -> NodeScoreMeta:
        made = self._metas[row] = self.meta(row)
        return made

    def meta(self, row: int, penalised: frozenset[int] = frozenset()) -> NodeScoreMeta:
        """A row's parts and its score."""
        own = int(self._own[row])
        scores = {"binpack": self._binpack(row), "job-anti-affinity": self._anti_affinity(own)}
        scores["node-reschedule-penalty"] = -1.0 if row in penalised else 0.0
        if self._affinity is not None:
            scores["node-affinity"] = float(self._affinity[row])
        if self._devices is not None:
            scores["devices"] = float(self._devices[row])
        counted = [value for name, value in scores.items() if value or name == "binpack"]
        if self._spread.is_used:
            boost = float(self._spread.boosts()[self._spread.cell_of_row[row]])
            if boost:
                scores["allocation-spread"] = boost
                counted.append(boost)
        norm = round(sum(counted) / len(counted), ROUND)
        return NodeScoreMeta(node_id=self.view.rows.ids[row], scores=scores, norm_score=norm)

    def exhausted(self) -> dict[str, BoolArray]:
        """For each dimension the feasible rows that lack room for one more."""
        view, asked = self.view, self.ask.plain.usage.amounts
        found = {
            name: self._feasible & (view.used[:, column] + asked[column] > view.offered[:, column])
            for column, name in DIMENSIONS
        }
        limit = view.offered[:, ALLOCS]
        found["max allocations exceeded"] = self._feasible & (limit > 0) & (view.used[:, ALLOCS] + 1 > limit)
        return {name: mask for name, mask in found.items() if mask.any()}

    def _score_all(self) -> None:
        view, asked = self.view, self.ask.plain.usage.amounts
        room = self._open.copy()
        for column, _ in DIMENSIONS:
            room &= view.used[:, column] + asked[column] <= view.offered[:, column]
        limit = view.offered[:, ALLOCS]
        room &= (limit == 0) | (view.used[:, ALLOCS] < limit)
        rows = np.flatnonzero(room)
        sums, counts = np.zeros(len(room)), np.ones(len(room), np.int64)
        sums[rows] = self._binpacks(rows)
        mates = np.flatnonzero(self._own * room)
        sums[mates] -= (self._own[mates] + 1) / max(1, self.group.count)
        counts[mates] += 1
        if self._affinity is not None:
            sums += self._affinity
            counts += self._affinity != 0
        if self.ask.has_device_affinities:
            self._devices = np.zeros(len(room))
            for row in rows.tolist():
                self._devices[row] = self.ask.device_score(view.node(row), view.held(row))
            sums += self._devices
            counts += self._devices != 0
        self._sums, self._counts = sums, counts
        self._scores = np.where(room, np.round(sums / counts, ROUND), IMPOSSIBLE)
        self._window, self._is_stale, self._generation = [], False, view.generation
        self._metas.clear()
        self._known = None

    def _score_row(self, row: int) -> None:
        self._metas.pop(row, None)
        self._known = None
        if self.view.exhausted(row, self.ask.plain.usage):
            self.close(row)
            return
        own = int(self._own[row])
        total, count = self._binpack(row), 1
        if own:
            total += self._anti_affinity(own)
            count += 1
        if self._affinity is not None and self._affinity[row]:
            total += float(self._affinity[row])
            count += 1
        if self._devices is not None:
            self._devices[row] = self.ask.device_score(self.view.node(row), self.view.held(row))
            total += float(self._devices[row])
            count += bool(self._devices[row])
        self._sums[row], self._counts[row] = total, count
        score = self._scores[row] = round(total / count, ROUND)
        if self._window:
            self._window = self._without(row)
            entry = (-score, int(self._ties[row]), row)
            if entry <= self._bound:
                insort(self._window, entry)

    def _without(self, row: int) -> list[Entry]:
        window = self._window
        if window[0][2] == row:
            del window[0]
            return window
        return [entry for entry in window if entry[2] != row]

    def _fill(self, size: int) -> None:
        scores = self._scores
        size = min(size, len(scores))
        if not size:
            return
        least = float(np.partition(scores, len(scores) - size)[len(scores) - size])
        if least == IMPOSSIBLE:
            rows = np.flatnonzero(scores != IMPOSSIBLE)
            self._window = sorted(zip((-scores[rows]).tolist(), self._ties[rows].tolist(), rows.tolist(), strict=True))
            self._bound = (np.inf, 0, 0)
            return
        better, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        wanted = size - len(better)
        if wanted < len(equal):
            equal = equal[np.argpartition(self._ties[equal], wanted - 1)[:wanted]]
        rows = np.concatenate((better, equal))
        self._window = sorted(zip((-scores[rows]).tolist(), self._ties[rows].tolist(), rows.tolist(), strict=True))
        self._bound = self._window[-1]

    def _combined(self, penalised: frozenset[int]) -> FloatArray:
        """All scores with penalties and spread; kept until a row changes, for the pick and its score table alike."""
        if self._known is None or self._known[0] != penalised:
            self._known = (penalised, self._combine(penalised))
        return self._known[1]

    def _combine(self, penalised: frozenset[int]) -> FloatArray:
        sums, counts = self._sums, self._counts
        if penalised:
            rows = np.fromiter(penalised, np.int64)
            sums, counts = sums.copy(), counts.copy()
            sums[rows] -= 1
            counts[rows] += 1
        if self._spread.is_used:
            boosts = self._spread.boosts()
            cells = self._spread.cell_of_row
            sums = sums + boosts[cells]
            counts = counts + (boosts != 0)[cells]
        scores: FloatArray = np.where(self._scores == IMPOSSIBLE, IMPOSSIBLE, np.round(sums / counts, ROUND))
        return scores

    def _best_of(self, scores: FloatArray) -> int | None:
        if not len(scores):
            return None
        best = scores.max()
        if best == IMPOSSIBLE:
            return None
        rows = np.flatnonzero(scores == best)
        return int(rows[np.argmin(self._ties[rows])])

    def _binpacks(self, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Scores of the rows with one more placement, equal amounts computed once."""
        view, asked = self.view, self.ask.plain.usage.amounts
        used, offered = view.used[rows], view.offered[rows]
        free_cpu = _free(used[:, CPU] + asked[CPU], offered[:, CPU])
        free_memory = _free(used[:, MEMORY] + asked[MEMORY], offered[:, MEMORY])
        total = np.power(10.0, free_cpu) + np.power(10.0, free_memory)
        raw = total - 2 if self._is_spread_algorithm else 20 - total
        fitness: FloatArray = np.round(np.clip(raw, 0, 18) / 18, ROUND)
        return fitness

    def _binpack(self, row: int) -> float:
        asked = self.ask.plain.usage
        used, offered = self.view.used[row], self.view.offered[row]
        key = (int(used[CPU]), int(used[MEMORY]), int(offered[CPU]), int(offered[MEMORY]))
        known = self._memo.get(key)
        if known is None:
            total = 10.0 ** _free_of(key[0] + asked.cpu, key[2]) + 10.0 ** _free_of(key[1] + asked.memory, key[3])
            raw = total - 2 if self._is_spread_algorithm else 20 - total
            known = self._memo[key] = round(min(18.0, max(0.0, raw)) / 18, ROUND)
        return known

    def _anti_affinity(self, own: int) -> float:
        return -(own + 1) / max(1, self.group.count) if own else 0.0


def _free(used: IntArray, offered: IntArray) -> FloatArray:
    share: FloatArray = np.divide(used, offered, out=np.ones(len(used)), where=offered > 0)
    return 1 - share


def _free_of(used: int, offered: int) -> float:
    return 1 - used / offered if offered > 0 else 0.0


def _affinities(view: View, job: Job, group: TaskGroup) -> FloatArray | None:
    affinities = (*job.affinities, *group.affinities, *(a for task in group.tasks for a in task.affinities))
    weight = sum(abs(affinity.weight) for affinity in affinities)
    if not weight:
        return None
    total = np.zeros(len(view.offered))
    for affinity in affinities:
        constraint = Constraint(l_target=affinity.l_target, operand=affinity.operand, r_target=affinity.r_target)
        total += check_mask(view.snapshot, constraint_check(constraint)) * float(affinity.weight)
    return total / weight
