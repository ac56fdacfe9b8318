"""Ranking: every node scored as arrays, and a placement updates only what it changes (semantics 14, 15).

A node's score is the mean of the terms that count for it (`terms`). Terms are whole numbers of 1e-9, kept as a sum and
a number per row, so that scores are exact quotients and compare alike everywhere; equal ones are told apart by a hash
of node id and seed, never by row. Without spreads a placement changes the score of its own node alone: the best rows
are kept in a small sorted window, and a run of equal placements is ordered at once (`runs`). With spreads the best rows
are kept per cell (`cells`).
"""

from __future__ import annotations

from bisect import insort
from typing import Final, NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk, mhz_of_core
from yurt.scheduler.capacity.view import DIMENSIONS, ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.feasibility.node_cache import answers_by_row
from yurt.scheduler.ids import Ties
from yurt.scheduler.placing.cells import Cells
from yurt.scheduler.placing.exhausted_nodes import ExhaustedCounts, ExhaustedNodes
from yurt.scheduler.placing.spread import ALLOCATION_SPREAD, SpreadScore
from yurt.scheduler.placing.terms.group_terms import GroupTerms
from yurt.scheduler.placing.terms.reschedule_penalty import PENALTY, RESCHEDULE_PENALTY
from yurt.scheduler.placing.terms.term import UNIT, FloatArray, TermContext
from yurt.scheduler.placing.top_k import IMPOSSIBLE, best_rows
from yurt.state.arrays import IntArray, numbered
from yurt.state.columns import ALLOCS, CPU, USED_WIDTH, Chunk
from yurt.structs.explain.metrics import NodeScoreMeta
from yurt.structs.job import Job, TaskGroup

SCORES_KEPT = 5
WINDOW_MIN, WINDOW_MAX = 16, 256
FITS_KEPT = 16
"""Asks whose fitness is kept for the next attempt."""
FEW_ROWS = 32
"""So many rows are looked at one by one."""
FEW_CHANGED = 4
"""When a quarter of the rows changed, all are looked at: plain arrays are quicker than picking rows."""
NO_AMOUNTS: Final[IntArray] = np.zeros(0, np.int64)

Entry = tuple[float, int, int]
"""(negative score, tie, row): the smallest is the best."""
Shown = tuple[dict[str, float], int, int]
"""The parts of a score by name, their sum, and how many of them are not 0."""


_CountsOf = dict[int, tuple[BoolArray, ExhaustedCounts]]
"""Counts of the rows without room among those of a mask, by the identity of the mask."""


class _Fitness(NamedTuple):
    """For one ask the fitness of all rows and which have room, and what this follows from."""

    chunks: tuple[Chunk, ...]
    binpacks: IntArray
    has_room: BoolArray
    counts: _CountsOf


_FitnessKey = tuple[tuple[int, ...], bool]
"""What is asked, and whether the algorithm spreads."""


class RankOptions(NamedTuple):
    """How an attempt ranks."""

    is_spread_algorithm: bool
    salt: int


class Ranker:
    """Scores of all nodes for one group."""

    def __init__(
        self, view: ClusterView, job: Job, group: TaskGroup, ask: GroupAsk, *, mask: BoolArray, options: RankOptions
    ) -> None:
        self.view = view
        self.group = group
        self.ask = ask
        self.terms = GroupTerms(TermContext(view, job, group, ask), prefers_empty=options.is_spread_algorithm)
        self._feasible = mask
        self._open = mask
        """The feasible rows that are not closed; the mask itself until one is."""
        self.exhausted = ExhaustedNodes(view, ask.plain.usage, mask)
        """The feasible rows without room, counted."""
        self.ties = Ties(view.rows.ties, options.salt)
        self._core_mhz = _core_mhz(view, ask) if ask.cores else None
        """What the reserved cores of one more would add on each row."""
        self._own = np.zeros(len(mask), np.int64)
        self._own_rows: set[int] = set()
        """The rows that have, or had, allocations of the group."""
        self.spread = SpreadScore(view.snapshot, job, group)
        self._cells: Cells | None = None
        self._window: list[Entry] = []
        self._bound: Entry = (np.inf, 0, 0)
        self._is_stale = True
        self._generation = -1
        self._counts_of_state: _CountsOf = {}
        """What is counted already of the rows as they are without the plan."""
        self._fitness: dict[tuple[int, ...], tuple[int, bool]] = {}
        """For amounts used and offered the fitness, and whether there is room."""
        self._metas: dict[int, NodeScoreMeta] = {}
        """Rows of the score table that still hold; shared by all placements that show them."""
        self._shown: dict[int, Shown] = {}
        self._alike: dict[tuple[int, int, tuple[int, ...]], Shown] = {}
        """The parts that rows in equal situations share."""
        self._boosted: dict[tuple[int, int], tuple[dict[str, float], float]] = {}
        """Parts with a boost, by the identity of those without, which `_alike` keeps."""
        self._boosted_metas: dict[int, tuple[int, NodeScoreMeta]] = {}
        """Rows of the score table under spreads that still hold, and the boosts that they show."""
        self._binpacks = NO_AMOUNTS
        """The fitness of all rows, under spreads."""
        self._has_own = False
        """Whether any row has allocations of the group."""
        self._sums = self._counts = NO_AMOUNTS
        """Sums and numbers of the parts; not made where the fitness is the only part."""
        self.scores: FloatArray = np.zeros(0)
        """Means of the parts without spreads and penalties; minus infinity where there is no room."""

    @property
    def own(self) -> IntArray:
        """How many allocations of the group each row has."""
        return self._own

    def count_own(self, rows: list[int], sign: int = 1) -> None:
        """Allocations of the same job and group that are on these rows."""
        self._forget_all()
        self._has_own = True
        self._own_rows.update(rows)
        for row in rows:
            self._own[row] += sign
            if self.spread.is_used:
                self.spread.count(row, sign)
        self._is_stale = True

    def reopen(self) -> None:
        """What is used changed by other means than `placed`: open all rows and score them anew."""
        self._open = self._feasible
        self.exhausted.reopen()
        self._forget_all()
        self._is_stale = True

    def restart(self, expected: int) -> None:
        """Go on for another job, which has nothing on any row: what was placed so far is only what is used.

        So many placements of its own are to come.
        """
        rows, self._own_rows = sorted(self._own_rows), set()
        for row in rows:
            self._own[row] = 0
        self._has_own = False
        if self._is_stale or self._generation != self.view.generation:
            return
        for row in rows:
            self._score_row(row)
        if len(self._window) < _window_size(expected):
            self._window = []

    # -- the inner loop: best, top, placed -------------------------------------------------------------------------

    def best(
        self, *, expected: int = 1, penalised: frozenset[int] = frozenset(), preferred: int | None = None
    ) -> int | None:
        """The row to place on, or None. `expected` more placements of the same kind are to come."""
        self.refresh()
        if preferred is not None and self.scores[preferred] != IMPOSSIBLE:
            return preferred
        # Penalties hold for one placement only, so they are laid over a copy and never enter what is kept.
        if penalised:
            return self._best_of(self._combined(penalised))
        if self._cells is not None:
            return self._cells.best()
        if not self._window:
            self._fill(_window_size(expected))
        return self._window[0][2] if self._window else None

    def refresh(self) -> None:
        """Score all rows anew when what is used changed by other means than `placed`."""
        if self._is_stale or self._generation != self.view.generation:
            self._score_all()

    def counts(self) -> ExhaustedCounts:
        """How many feasible rows have no room now; of a ranker whose rules close none, and that is refreshed."""
        exhausted = self.exhausted
        if exhausted.known is None:
            kept = self._counts_of_state
            is_of_state = self.view.generation == 0 and self._open is self._feasible
            known = kept.get(id(self._feasible)) if is_of_state else None
            exhausted.known = known[1] if known else exhausted.count(self._feasible & (self.scores == IMPOSSIBLE))
            if is_of_state and known is None:
                while len(kept) >= FITS_KEPT:
                    kept.pop(next(iter(tuple(kept))), None)
                kept[id(self._feasible)] = (self._feasible, exhausted.known)
        return exhausted.known

    def _reopen(self, row: int) -> None:
        """A row that could not take any more was placed on all the same: others made room there, perhaps for more."""
        self._open = self._open.copy()
        self._open[row] = True

    def close(self, row: int) -> None:
        """The row cannot take any further placement of this group."""
        if self._open is self._feasible:
            self._open = self._feasible.copy()
        self._open[row] = False
        self.scores[row] = IMPOSSIBLE
        self._window = [entry for entry in self._window if entry[2] != row]
        if self._cells is not None:
            self._cells.remove(row)

    def close_all(self, mask: BoolArray) -> None:
        """None of these rows can take a further placement of this group."""
        if (self._open & mask).any():
            self._open = self._open & ~mask
            self._is_stale = True

    def placed(self, row: int) -> None:
        """A placement of this group went to the row."""
        self._own[row] += 1
        self._own_rows.add(row)
        self._has_own = True
        changed = self.spread.count(row) if self.spread.is_used else ()
        if not self._open[row]:
            self._reopen(row)
        if not self._is_stale:
            self._score_row(row)
            if self._cells is not None:
                self._cells.placed(row, changed)
            self._generation = self.view.generation

    def placed_run(self, rows: IntArray) -> None:
        """Placements of a run went to the rows, one for each time that a row is named."""
        np.add.at(self._own, rows, 1)
        self._own_rows.update(rows.tolist())
        self._has_own = True
        self._forget_all()
        self._is_stale = True

    def top(self, chosen: int, penalised: frozenset[int] = frozenset()) -> tuple[NodeScoreMeta, ...]:
        """The scores of the chosen row and the next best."""
        if penalised:
            scores = self._combined(penalised)
            rows, _ = best_rows(scores, self.ties, SCORES_KEPT)
            entries = sorted((-float(scores[row]), self.ties.of(row), row) for row in rows.tolist())
            others = [entry[2] for entry in entries if entry[2] != chosen][: SCORES_KEPT - 1]
            return tuple(self.meta(row, penalised) for row in (chosen, *others))
        if self._cells is not None:
            found = self._cells.top()
            if not found or found[0][0] != chosen:
                others = [entry for entry in found if entry[0] != chosen]
                found = [(chosen, self.spread.boost(chosen)), *others[: SCORES_KEPT - 1]]
            return self._boosted_table(found)
        shown = [entry[2] for entry in self._window[:SCORES_KEPT]]
        if chosen not in shown[:1]:
            shown = [chosen, *[row for row in shown if row != chosen][: SCORES_KEPT - 1]]
        metas = self._metas
        return tuple([metas.get(row) or self._remember(row) for row in shown])

    def _boosted_table(self, found: list[tuple[int, int]]) -> tuple[NodeScoreMeta, ...]:
        """As `meta` of some rows with their boosts; made once as long as neither a row nor its boost changes."""
        table, metas = [], self._boosted_metas
        for row, boost in found:
            known = metas.get(row)
            if known is None or known[0] != boost:
                shown = self._shown.get(row) or self._show(row, self._binpacks.item(row))
                scores, norm = self._with_boost(shown, boost)
                made = NodeScoreMeta(node_id=self.view.rows.ids[row], scores=scores, norm_score=norm)
                known = metas[row] = (boost, made)
            table.append(known[1])
        return tuple(table)

    def _with_boost(self, shown: Shown, boost: int) -> tuple[dict[str, float], float]:
        """Parts with their boost, and their mean; shared by rows in equal situations."""
        key = (id(shown), boost)
        found = self._boosted.get(key)
        if found is None:
            scores, total, count = shown
            if boost:
                scores, total, count = {**scores, ALLOCATION_SPREAD.name: boost / UNIT}, total + boost, count + 1
            found = self._boosted[key] = (scores, round(total / count) / UNIT)
        return found

    def _remember(self, row: int) -> NodeScoreMeta:
        made = self._metas[row] = self.meta(row)
        return made

    def meta(self, row: int, penalised: frozenset[int] = frozenset()) -> NodeScoreMeta:
        """A row's parts and its score."""
        shown, total, count = self._shown.get(row) or self._show(row, self._fit(row)[0])
        if row in penalised:
            shown = {**shown, RESCHEDULE_PENALTY.name: PENALTY / UNIT}
            total, count = total + PENALTY, count + 1
        if self.spread.is_used:
            boost = self.spread.boost(row)
            if boost:
                shown = {**shown, ALLOCATION_SPREAD.name: boost / UNIT}
                total, count = total + boost, count + 1
        return NodeScoreMeta(node_id=self.view.rows.ids[row], scores=shown, norm_score=round(total / count) / UNIT)

    def forget(self, row: int) -> None:
        """What is used on the row is tried out otherwise."""
        self._metas.pop(row, None)
        self._shown.pop(row, None)
        self._boosted_metas.pop(row, None)

    def _forget_all(self) -> None:
        self._metas.clear()
        self._shown.clear()
        self._boosted_metas.clear()

    def extras(self, row: int) -> tuple[int, ...]:
        """The parts of a row's score that do not follow from what is used."""
        found = [term.values.item(row) for term in self.terms.evaluated]
        if self.spread.is_used:
            found.append(self.spread.boost(row))
        return tuple(found)

    def _show(self, row: int, binpack: int) -> Shown:
        """A row's parts without spread and penalty, their sum and number; kept until the row changes."""
        own = self._own.item(row)
        evaluated = self.terms.evaluated
        values = tuple([term.values.item(row) for term in evaluated]) if evaluated else ()
        key = (own, binpack, values)
        found = self._alike.get(key)
        if found is None:
            anti = self.terms.anti_affinity.of_row(own)
            total, count = binpack + anti, 1 + (own > 0)
            for term, value in zip(evaluated, values, strict=True):
                total, count = total + value, count + (value != 0 or term.counts_at_zero)
            found = self._alike[key] = (self.terms.shown(binpack, anti, values), total, count)
        self._shown[row] = found
        return found

    def _score_all(self) -> None:
        fits = self._fits()
        room = self._open & fits.has_room
        self._window, self._is_stale, self._generation = [], False, self.view.generation
        self.exhausted.forget()
        self._counts_of_state = fits.counts
        self._forget_all()
        if not (self._has_own or self.spread.is_used or self.terms.others):
            self._sums = self._counts = NO_AMOUNTS
            self.scores = np.where(room, fits.binpacks, IMPOSSIBLE)
            return
        self._sum_up(fits, room)
        self.scores = np.where(room, self._sums / self._counts, IMPOSSIBLE)
        if self.spread.is_used:
            self._binpacks = fits.binpacks.copy()
            rows, sums, counts = np.flatnonzero(room), self._sums, self._counts
            self._cells = Cells(self.spread, self.ties, rows, sums=sums, counts=counts, kept=SCORES_KEPT)

    def _sum_up(self, fits: _Fitness, room: BoolArray) -> None:
        """The parts of all rows without spreads and penalties."""
        sums, counts = fits.binpacks.copy(), np.ones(len(room), np.int64)
        mates = np.flatnonzero(self._own)
        sums[mates] += self.terms.anti_affinity.of_rows(self._own[mates])
        counts[mates] += 1
        for term in self.terms.following:
            term.refresh(room)
        self.terms.evaluated = self.terms.others
        for term in self.terms.others:
            sums += term.values
            counts += 1 if term.counts_at_zero else term.values != 0
        self._sums, self._counts = sums, counts

    def _fits(self) -> _Fitness:
        """The fitness of all rows; kept from one attempt to the next, which looks at rows whose usage changed."""
        view = self.view
        kept: dict[_FitnessKey, _Fitness] = view.rows.lasting.setdefault("fits", {})
        key = (self.ask.plain.usage.amounts, self.terms.binpack.prefers_empty)
        if self._core_mhz is not None:
            used = self._with_cores(view.used)
            return _Fitness(
                (), self.terms.binpack.of_rows(used, view.offered), self._has_room(view.used, view.offered), {}
            )
        known = kept.get(key)
        changed = None if known is None else view.columns.changed_rows(known.chunks)
        changed = None if changed is None else [*changed, *view.changed_rows()]
        if known is None or changed is None or len(changed) * FEW_CHANGED > len(view.offered):
            used, offered = view.used, view.offered
            found = _Fitness(
                view.columns.chunks, self.terms.binpack.of_rows(used, offered), self._has_room(used, offered), {}
            )
        else:
            found = self._brought_forward(known, changed) if changed else known
        if found is not known and view.generation == 0:
            while len(kept) >= FITS_KEPT:
                kept.pop(next(iter(tuple(kept))), None)
            kept[key] = found
        return found

    def _with_cores(self, used: IntArray) -> IntArray:
        """What is used, and the cores that one more would reserve."""
        found = used.copy()
        found[:, CPU] += 0 if self._core_mhz is None else self._core_mhz
        return found

    def _brought_forward(self, known: _Fitness, changed: list[int]) -> _Fitness:
        view, chunks = self.view, self.view.columns.chunks
        binpacks, has_room = known.binpacks.copy(), known.has_room.copy()
        if len(changed) <= FEW_ROWS:
            for row in changed:
                binpacks[row], has_room[row] = self._fit(row)
            is_same = all(known.has_room.item(row) and has_room.item(row) for row in changed)
        else:
            rows = np.array(changed, np.int64)
            used, offered = view.used[rows], view.offered[rows]
            binpacks[rows], has_room[rows] = self.terms.binpack.of_rows(used, offered), self._has_room(used, offered)
            is_same = bool((known.has_room[rows] & has_room[rows]).all())
        is_same &= all(now.offered is then.offered for now, then in zip(chunks, known.chunks, strict=True))
        return _Fitness(chunks, binpacks, has_room, known.counts if is_same else {})

    def _has_room(self, used: IntArray, offered: IntArray) -> BoolArray:
        """Rows that can take one more."""
        asked = self.ask.plain.usage.amounts
        limit = offered[:, ALLOCS]
        room: BoolArray = (limit == 0) | (used[:, ALLOCS] < limit)
        for column, _ in DIMENSIONS:
            room &= used[:, column] + asked[column] <= offered[:, column]
        return room

    def _score_row(self, row: int) -> None:
        self.forget(row)
        binpack, has_room = self._fit(row)
        if not has_room:
            if self.scores[row] != IMPOSSIBLE:
                self.exhausted.fill(row)
            self.close(row)
            return
        for term in self.terms.following:
            term.update(row)
        if self._cells is not None:
            self._binpacks[row] = binpack
        _, total, count = self._show(row, binpack)
        self._replace(row, total, count)

    def _replace(self, row: int, total: int, count: int) -> None:
        """The row has other parts now."""
        if len(self._sums):
            self._sums[row], self._counts[row] = total, count
        score = self.scores[row] = total / count
        if self._cells is not None:
            self._cells.move(row, total, count)
        elif self._window:
            self._window = self._without(row)
            # Below the bound there may be rows outside the window that are better: this one waits outside with them.
            entry = (-score, self.ties.of(row), row)
            if entry <= self._bound:
                insort(self._window, entry)

    def _without(self, row: int) -> list[Entry]:
        window = self._window
        if window[0][2] == row:
            del window[0]
            return window
        return [entry for entry in window if entry[2] != row]

    def _fill(self, size: int) -> None:
        rows, is_all = best_rows(self.scores, self.ties, size)
        self._window = sorted(zip((-self.scores[rows]).tolist(), self.ties[rows].tolist(), rows.tolist(), strict=True))
        self._bound = (np.inf, 0, 0) if is_all or not self._window else self._window[-1]

    def _combined(self, penalised: frozenset[int]) -> FloatArray:
        """All scores with penalties and spread."""
        rows = np.fromiter(penalised, np.int64)
        if not len(self._sums):
            self._sum_up(self._fits(), self.scores != IMPOSSIBLE)
        sums, counts = self._sums.copy(), self._counts.copy()
        sums[rows] += PENALTY
        counts[rows] += 1
        if self.spread.is_used:
            boosts = self.spread.boosts()
            sums += boosts
            counts += boosts != 0
        scores: FloatArray = np.where(self.scores == IMPOSSIBLE, IMPOSSIBLE, sums / counts)
        return scores

    def _best_of(self, scores: FloatArray) -> int | None:
        if not len(scores):
            return None
        best = scores.max()
        if best == IMPOSSIBLE:
            return None
        rows = np.flatnonzero(scores == best)
        return int(rows[np.argmin(self.ties[rows])])

    def _fit(self, row: int) -> tuple[int, bool]:
        """The fitness of one row, and whether it has room."""
        view = self.view
        used, offered = view.used_on(row), view.offered_on(row)
        mhz = 0 if self._core_mhz is None else self._core_mhz.item(row)
        key = (*used, *offered[:USED_WIDTH], mhz)
        known = self._fitness.get(key)
        if known is None:
            fitness = self.terms.binpack.of_row(used, offered, mhz)
            known = self._fitness[key] = (fitness, not view.exhausted(row, self.ask.plain.usage))
        return known


def _window_size(expected: int) -> int:
    """How many of the best rows are kept in order."""
    return min(WINDOW_MAX, max(WINDOW_MIN, expected + SCORES_KEPT))


def _core_mhz(view: ClusterView, ask: GroupAsk) -> IntArray:
    """For each row the MHz of the cores that an ask reserves."""
    of_one = answers_by_row(view.snapshot, "MHz of a core", lambda nodes: list(map(mhz_of_core, nodes)), without=0)
    kinds, firsts = numbered(of_one)
    return np.array([ask.cpu_of_cores(mhz) for mhz in of_one[firsts].tolist()], np.int64)[kinds]
