"""Runs: many equal placements of a group, computed in one step.

Without spreads a placement changes only its own node. Placing one after another is then a merge: each node has the list
of the scores of its first, second, third ... placement, and the best head is taken each time. So a node's k-th
placement is taken when the least score of its first k is the best of all: sorting all of them by that running minimum,
then by tie and k, is the order of the placements. Nodes that are not among the best `count` are never reached.

    node a   0.9  0.7  0.8      running minimum   0.9  0.7  0.7      order   a b b a a
    node b   0.8  0.75                            0.8  0.75

The score table of a placement also shows the next best other nodes at that moment, which are the next other nodes in
the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from yurt.scheduler.capacity.view import DIMENSIONS
from yurt.scheduler.placing.exhausted_nodes import ExhaustedCounts
from yurt.scheduler.placing.ranking import SCORES_MAX, Ranker
from yurt.scheduler.placing.terms.term import UNIT, FloatArray
from yurt.scheduler.placing.top_k import IMPOSSIBLE, best_rows, nth_highest
from yurt.state.arrays import IntArray
from yurt.state.columns import ALLOCS
from yurt.structs.explain.metrics import NodeScoreMeta

CELLS_MAX = 1 << 15
"""The maximum number of scores evaluated at once: many nodes a few placements deep, or few nodes deeper."""
FEW = 16
"""Up to this number, single placements are faster than a run."""
DEPTH_MIN, DEPTH_GROWTH = 4, 4


class _Levels(msgspec.Struct, frozen=True):
    """For some rows, the parts and scores of their next placements, and the number of placements that fit."""

    rows: IntArray
    fits: IntArray
    binpacks: IntArray
    anti: IntArray
    others: tuple[IntArray, ...]
    """The values of the other terms: one column for each further placement, or one for all."""
    scores: FloatArray

    def values_at(self, ats: IntArray, ks: IntArray) -> list[tuple[int, ...]]:
        """The values of the other terms for some placements."""
        if not self.others:
            return [()] * len(ats)
        columns = [each[ats, ks if each.shape[1] > 1 else 0].tolist() for each in self.others]
        return list(zip(*columns, strict=True))


ScoreTable = tuple[NodeScoreMeta, ...]


class PlacementRun(msgspec.Struct, frozen=True):
    """Placements in order: the row and score table of each, and the exhausted counts from each placement on."""

    rows: list[int]
    tables: list[ScoreTable]
    counts: list[tuple[int, ExhaustedCounts]]


def place_run(ranker: Ranker, count: int) -> PlacementRun:
    """Up to `count` placements in order, counted in the ranker and the view."""
    if count <= FEW or ranker.spread.is_used:
        return place_singly(ranker, count)
    run = PlacementRun([], [], [])
    depth = DEPTH_MIN
    while len(run.rows) < count:
        part, depth = _part(ranker, count - len(run.rows), depth)
        if not part.rows:
            break
        run.counts.extend([(len(run.rows) + at, counts) for at, counts in part.counts])
        run.rows.extend(part.rows)
        run.tables.extend(part.tables)
        rows = np.array(part.rows, np.int64)
        # One sum for all placements of a part: the view and the ranking are updated once, not per placement.
        ranker.view.take_rows(rows, ranker.ask.plain.usage)
        ranker.placed_run(rows)
        # One row is a sufficient sample: all rows of a part are computed by the same arithmetic.
        assert _is_within_capacity(ranker, part.rows[-1]), (part.rows[-1], len(part.rows))
    assert len(run.rows) == len(run.tables) <= count, (len(run.rows), len(run.tables), count)
    return run


def _is_within_capacity(ranker: Ranker, row: int) -> bool:
    """Whether every amount of a row is within its node's capacity."""
    used, offered = ranker.view.used_on(row), ranker.view.offered_on(row)
    return all(used[column] <= offered[column] for column, _ in DIMENSIONS)


def place_singly(ranker: Ranker, count: int) -> PlacementRun:
    """`place_run` one placement at a time: for short runs, and under spreads, where each placement changes many
    scores."""
    rows: list[int] = []
    tables: list[ScoreTable] = []
    changes: list[tuple[int, ExhaustedCounts]] = []
    last: ExhaustedCounts | None = None
    view, usage, exhausted = ranker.view, ranker.ask.plain.usage, ranker.exhausted
    best, top, take, placed = ranker.best, ranker.top, view.take, ranker.placed
    while len(rows) < count:
        row = best(expected=count - len(rows))
        if row is None:
            break
        counts = exhausted.counts or ranker.counts()
        if counts is not last:
            changes.append((len(rows), counts))
            last = counts
        rows.append(row)
        tables.append(top(row))
        take(row, usage)
        placed(row)
    return PlacementRun(rows, tables, changes)


def _part(ranker: Ranker, count: int, depth: int) -> tuple[PlacementRun, int]:
    """The placements that follow from one evaluation of the best nodes, and the depth of the next evaluation.

    An evaluation ends where a node may take more placements than were evaluated, or where the score table might have to
    show a node that was not evaluated.
    """
    ranker.refresh()
    rows, is_all = best_rows(ranker.scores, ranker.ties, min(count, max(1, CELLS_MAX // depth)) + SCORES_MAX)
    if not len(rows):
        return PlacementRun([], [], []), depth
    # The table is wide (many nodes) or deep (many placements on each), never both: `CELLS_MAX` bounds its size, and the
    # depth depends on the end of the last evaluation.
    levels = _levels(ranker, rows, count, depth)
    seen = levels.scores.shape[1]
    lowest = np.minimum.accumulate(levels.scores, axis=1)
    flat = lowest.reshape(-1)
    total = min(count, int(np.count_nonzero(flat != IMPOSSIBLE)))
    assert total > 0, (count, depth, "each of these rows has room for one more")
    least = nth_highest(flat, total)
    # Only scores that reach the lowest needed one are sorted; -1e300 excludes impossible ones (minus infinity).
    places = np.flatnonzero(flat >= max(least, -1e300))
    ats, ks = np.divmod(places, seen)
    # Ties before depth: of nodes with equal scores, one takes all its placements with that score, as in single steps.
    order = np.lexsort((ks, ranker.ties[rows][ats], -flat[places]))[:total]
    ats, ks = ats[order], ks[order]
    # Beyond the last evaluated level, a node's next score is unknown and might be the best of all.
    unknown = np.flatnonzero((ks == seen - 1) & (levels.fits[ats] > seen))
    deep = int(unknown[0]) + 1 if len(unknown) else total
    wide = total
    # A score table needs `SCORES_MAX` unused nodes; when too few are left, too few nodes were evaluated.
    if not is_all:
        fresh = np.flatnonzero(ks == 0)
        wide = int(fresh[len(rows) - SCORES_MAX]) if len(fresh) > len(rows) - SCORES_MAX else total
    end = min(deep, wide)
    assert 0 < end <= total, (deep, wide, total, "each evaluation places something, or the run would never end")
    # The next evaluation is deeper if depth ended this one, and flatter (with more nodes) if width did.
    if end < total:
        depth = depth * DEPTH_GROWTH if deep <= wide else max(DEPTH_MIN, depth // 2)
    ats, ks = ats[:end], ks[:end]
    placed, tables = _tables(ranker, levels, ats, ks)
    return PlacementRun(placed, tables, list(_counts(ranker, levels, ats, ks))), depth


def _counts(ranker: Ranker, levels: _Levels, ats: IntArray, ks: IntArray) -> Iterator[tuple[int, ExhaustedCounts]]:
    """The exhausted counts, each with the placement from which it holds: the initial ones, then one more per filled
    row."""
    yield 0, ranker.counts()
    places = np.flatnonzero(ks[:-1] + 1 == levels.fits[ats[:-1]])
    full = ats[places]
    rows = levels.rows[full]
    used = ranker.view.used[rows] + levels.fits[full][:, None] * np.array(ranker.ask.plain.usage.amounts, np.int64)
    for place, counts in zip(places.tolist(), ranker.exhausted.filling(rows, used), strict=True):
        yield place + 1, counts


def _levels(ranker: Ranker, rows: IntArray, count: int, depth: int) -> _Levels:
    view, required = ranker.view, ranker.ask.plain.usage.amounts
    used, offered = view.used[rows], view.offered[rows]
    fits = np.full(len(rows), count + 1, np.int64)
    for column, _ in DIMENSIONS:
        if required[column] > 0:
            fits = np.minimum(fits, (offered[:, column] - used[:, column]) // required[column])
    # A limit of 0 means none.
    limited = offered[:, ALLOCS] > 0
    fits[limited] = np.minimum(fits, offered[:, ALLOCS] - used[:, ALLOCS])[limited]
    assert fits.min() > 0, "rows without room are impossible, and these are not"
    depth = min(int(fits.max()), depth, count)
    ks = np.arange(depth)
    binpacks = ranker.terms.binpack.of_rows(used[:, None, :], offered[:, None, :], ks + 1)
    own = ranker.own[rows][:, None] + ks
    anti = ranker.terms.anti_affinity.of_rows(own)
    sums, counts = binpacks + anti, 1 + (own > 0)
    others = tuple(term.upcoming(rows, ks + 1) for term in ranker.terms.others)
    for term, values in zip(ranker.terms.others, others, strict=True):
        sums, counts = sums + values, counts + (1 if term.counts_at_zero else values != 0)
    scores = np.where(ks < fits[:, None], sums / counts, IMPOSSIBLE)
    return _Levels(rows, fits, binpacks, anti, others, scores)


def _tables(ranker: Ranker, levels: _Levels, ats: IntArray, ks: IntArray) -> tuple[list[int], list[ScoreTable]]:
    """The placements with their score tables, computed from the last one backwards."""
    upcoming = _heads_after(ranker, levels, ats)
    heads = deque((at for at, _ in upcoming), SCORES_MAX)
    table = deque((meta for _, meta in upcoming), SCORES_MAX)
    ids, rows = ranker.view.rows.ids, levels.rows.tolist()
    shown: dict[tuple[int, int, tuple[int, ...]], Mapping[str, float]] = {}
    norms = (np.rint(levels.scores[ats, ks]) / UNIT).tolist()
    binpacks, antis = levels.binpacks[ats, ks].tolist(), levels.anti[ats, ks].tolist()
    parts = zip(ats.tolist(), binpacks, antis, levels.values_at(ats, ks), norms, strict=True)
    placed: list[int] = []
    tables: list[ScoreTable] = []
    add_row, add_table = placed.append, tables.append
    for at, binpack, anti, values, norm in reversed(list(parts)):
        key = (binpack, anti, values)
        scores = shown.get(key)
        if scores is None:
            scores = shown[key] = ranker.terms.shown(*key)
        row = rows[at]
        if at in heads:
            place = heads.index(at)
            del heads[place], table[place]
        heads.appendleft(at)
        table.appendleft(NodeScoreMeta(node_id=ids[row], scores=scores, norm_score=norm))
        add_row(row)
        add_table(tuple(table))
    placed.reverse()
    tables.reverse()
    return placed, tables


def _heads_after(ranker: Ranker, levels: _Levels, ats: IntArray) -> list[tuple[int, NodeScoreMeta]]:
    """The best rows after all placements, with the scores of their next placements."""
    counts = np.bincount(ats, minlength=len(levels.rows))
    depth = levels.scores.shape[1]
    heads = levels.scores[np.arange(len(levels.rows)), np.minimum(counts, depth - 1)]
    heads = np.where(counts < np.minimum(levels.fits, depth), heads, IMPOSSIBLE)
    best, _ = best_rows(heads, ranker.ties[levels.rows], SCORES_MAX)
    order = best[np.lexsort((ranker.ties[levels.rows][best], -heads[best]))]
    metas = []
    values_of = levels.values_at(order, counts[order])
    for at, values in zip(order.tolist(), values_of, strict=True):
        k = int(counts[at])
        scores = ranker.terms.shown(int(levels.binpacks[at, k]), int(levels.anti[at, k]), values)
        norm = round(float(heads[at])) / UNIT
        metas.append((at, NodeScoreMeta(node_id=ranker.view.rows.ids[levels.rows[at]], scores=scores, norm_score=norm)))
    return metas
