"""Score tables: the best nodes' scores with their parts, as shown with placements.

Most rows of a table are those of the table before, so the parts of a row are kept until a placement changes the row.
Rows in equal situations share their parts, and all placements that show a row share its entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.placing.fitness import FitnessTable
from yurt.scheduler.placing.score_arrays import NO_AMOUNTS
from yurt.scheduler.placing.spread import ALLOCATION_SPREAD, SpreadScore
from yurt.scheduler.placing.terms.group_terms import GroupTerms
from yurt.scheduler.placing.terms.reschedule_penalty import PENALTY, RESCHEDULE_PENALTY
from yurt.scheduler.placing.terms.term import UNIT
from yurt.state.arrays import IntArray
from yurt.structs.explain.metrics import NodeScoreMeta

Parts = tuple[dict[str, float], int, int]
"""The parts of a score by name, their sum, and the number of parts that count."""


class ScoreTables:
    """The score tables of one group; `own`, the group's allocations on each row, is maintained by the ranker."""

    def __init__(
        self, view: ClusterView, terms: GroupTerms, spread: SpreadScore, *, fitness: FitnessTable, own: IntArray
    ) -> None:
        self._view = view
        self._terms = terms
        self._spread = spread
        self._fitness = fitness
        self._own = own
        self._binpacks: IntArray = NO_AMOUNTS
        """The fitness of all rows as they were ranked together; empty when that has changed."""
        self._changed: set[int] = set()
        """The rows that have changed since."""
        self._metas: dict[int, NodeScoreMeta] = {}
        """Valid entries without spreads."""
        self._boosted_metas: dict[int, tuple[int, NodeScoreMeta]] = {}
        """Valid entries under spreads, with the boosts that they include."""
        self._parts: dict[int, Parts] = {}
        self._alike: dict[tuple[int, int, tuple[int, ...]], Parts] = {}
        """The parts that rows with equal inputs share."""
        self._boosted: dict[tuple[int, int], tuple[dict[str, float], float]] = {}
        """Parts with a boost, by the identity of those without, which `_alike` keeps alive."""

    def entries(self, rows: Iterable[int]) -> tuple[NodeScoreMeta, ...]:
        """The entries of some rows, without spreads."""
        metas = self._metas
        return tuple([metas.get(row) or self._remember(row) for row in rows])

    def boosted(self, rows: Iterable[tuple[int, int]], binpacks: IntArray) -> tuple[NodeScoreMeta, ...]:
        """The entries of some rows with their boosts; cached until a row or its boost changes."""
        table, metas = [], self._boosted_metas
        for row, boost in rows:
            cached = metas.get(row)
            if cached is None or cached[0] != boost:
                shown = self._parts.get(row) or self.parts(row, binpacks.item(row))
                scores, norm = self._with_boost(shown, boost)
                made = NodeScoreMeta(node_id=self._view.rows.ids[row], scores=scores, norm_score=norm)
                cached = metas[row] = (boost, made)
            table.append(cached[1])
        return tuple(table)

    def meta(self, row: int, penalised: frozenset[int] = frozenset()) -> NodeScoreMeta:
        """A row's parts and its score."""
        shown, total, count = self._parts.get(row) or self.parts(row, self._binpack(row))
        if row in penalised:
            shown = {**shown, RESCHEDULE_PENALTY.name: PENALTY / UNIT}
            total, count = total + PENALTY, count + 1
        if self._spread.is_used:
            boost = self._spread.boost(row)
            if boost:
                shown = {**shown, ALLOCATION_SPREAD.name: boost / UNIT}
                total, count = total + boost, count + 1
        return NodeScoreMeta(node_id=self._view.rows.ids[row], scores=shown, norm_score=round(total / count) / UNIT)

    def parts(self, row: int, binpack: int) -> Parts:
        """A row's parts without spread and penalty, their sum and number; cached until the row changes."""
        own = self._own.item(row)
        evaluated = self._terms.evaluated
        values = tuple([term.values.item(row) for term in evaluated]) if evaluated else ()
        key = (own, binpack, values)
        parts = self._alike.get(key)
        if parts is None:
            anti = self._terms.anti_affinity.of_row(own)
            total, count = binpack + anti, 1 + (own > 0)
            for term, value in zip(evaluated, values, strict=True):
                total, count = total + value, count + (value != 0 or term.counts_at_zero)
            parts = self._alike[key] = (self._terms.shown(binpack, anti, values), total, count)
        self._parts[row] = parts
        return parts

    def extras(self, row: int) -> tuple[int, ...]:
        """The parts of a row's score that do not depend on usage."""
        scores = [term.values.item(row) for term in self._terms.evaluated]
        if self._spread.is_used:
            scores.append(self._spread.boost(row))
        return tuple(scores)

    def _binpack(self, row: int) -> int:
        """The fitness of a row. Most rows that are shown are runners-up, which have not changed since the ranking."""
        if row in self._changed or not len(self._binpacks):
            return self._fitness.of_row(row)[0]
        return self._binpacks.item(row)

    def start(self, binpacks: IntArray) -> None:
        """Begin again after all rows were ranked together, with this fitness."""
        self.clear()
        self._binpacks = binpacks
        self._changed.clear()

    def forget(self, row: int) -> None:
        """Drop the cached parts of a row that has changed."""
        self._changed.add(row)
        self._metas.pop(row, None)
        self._parts.pop(row, None)
        self._boosted_metas.pop(row, None)

    def clear(self) -> None:
        """Drop all cached parts."""
        self._binpacks = NO_AMOUNTS
        self._metas.clear()
        self._parts.clear()
        self._boosted_metas.clear()

    def _with_boost(self, shown: Parts, boost: int) -> tuple[dict[str, float], float]:
        """Parts with their boost, and their mean; shared by rows with equal values."""
        key = (id(shown), boost)
        boosted = self._boosted.get(key)
        if boosted is None:
            scores, total, count = shown
            if boost:
                scores, total, count = {**scores, ALLOCATION_SPREAD.name: boost / UNIT}, total + boost, count + 1
            boosted = self._boosted[key] = (scores, round(total / count) / UNIT)
        return boosted

    def _remember(self, row: int) -> NodeScoreMeta:
        made = self._metas[row] = self.meta(row)
        return made
