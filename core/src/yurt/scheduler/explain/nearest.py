"""The nodes closest to accepting one more allocation of a group, and the smallest change among all nodes.

Arrays give a lower bound for the cost of each node's change. Nodes are examined in the order of that bound, until no
later node can cost less than the best change so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from yurt.scheduler.explain.blockers import AMOUNTS, ExclusiveUse, NodeBlockers
from yurt.scheduler.explain.edits import EQUIPMENT, text_of
from yurt.scheduler.explain.minimal_change import HOPELESS, Cost, NodeChange, change_for, device_edits
from yurt.scheduler.explain.node_shortage import node_shortages
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.terms.term import FloatArray
from yurt.state.arrays import IntArray
from yurt.structs.explain.explanation import NearMiss, SmallestChange

NEAR_MISSES = 5
MEASURED = frozenset({"cpu", "memory", "disk", "cores", "device"})
"""Kinds of problems that have a size; all others count 1."""


class Nearest(NamedTuple):
    """Rows by the lower bound of their change's cost; the first ones are shown with their shortages."""

    rows: list[int]
    least: list[Cost]
    shown: list[int]


class _Needs(NamedTuple):
    """Lower bounds of each row's cost, by part, and its number of problems."""

    hopeless: IntArray
    equipment: IntArray
    edits: IntArray
    weight: FloatArray
    missing: FloatArray


def nearest(blockers: NodeBlockers, nodes: BoolArray) -> Nearest:
    """The rows in order: those that a change can fix first; then by lower bound; then by name."""
    needs = _needs(blockers)
    rows = np.flatnonzero(nodes)
    names = _ranks([blockers.view.node(row).name for row in rows.tolist()])

    def ordered(size: FloatArray) -> IntArray:
        first, then, last = needs.hopeless[rows], needs.equipment[rows], needs.edits[rows]
        return rows[np.lexsort((blockers.rows.ties[rows], names, size[rows], last, then, first))]

    by_cost = ordered(needs.weight)
    parts = (needs.equipment[by_cost].tolist(), needs.edits[by_cost].tolist(), needs.weight[by_cost].tolist())
    return Nearest(by_cost.tolist(), list(zip(*parts, strict=True)), ordered(needs.missing)[:NEAR_MISSES].tolist())


def _needs(blockers: NodeBlockers) -> _Needs:
    edits = blockers.count.copy()
    masks = {problem.kind: problem.mask for problem in blockers.problems}
    if "cores" in masks and "cpu" in masks:
        edits -= masks["cores"] & masks["cpu"]
    weight = _number_of(blockers, masks.keys() - MEASURED).astype(np.float64)
    for row, in_use in blockers.in_use.items():
        weight[row] += _exclusive_weight(blockers, row, in_use)
    missing = weight.copy()
    for column, name, _ in AMOUNTS:
        if blockers.required[column] and not (name == "cpu" and blockers.placer.ask.cores):
            short = np.maximum(0, blockers.short(column))
            weight += -(-short // (blockers.own + 1)) / blockers.required[column]
            missing += short / blockers.required[column]
    return _Needs(_number_of(blockers, HOPELESS), _number_of(blockers, EQUIPMENT), edits, weight, missing)


def _number_of(blockers: NodeBlockers, kinds: Iterable[str]) -> IntArray:
    """The number of problems of these kinds on each row."""
    number, kind_set = np.zeros(len(blockers.count), np.int64), frozenset(kinds)
    for problem in blockers.problems:
        if problem.kind in kind_set:
            number += problem.mask
    return number


def _exclusive_weight(blockers: NodeBlockers, row: int, in_use: ExclusiveUse) -> float:
    """The lower bound of the size of edits for cores and devices."""
    required, own = blockers.placer.ask.cores, int(blockers.own[row])
    cores = max(0, required - (in_use.cores_free + own * required) // (own + 1)) / required if required else 0.0
    return cores + sum(size for _, size in device_edits(blockers, row))


def _ranks(names: Sequence[str]) -> IntArray:
    """The rank of each name."""
    place = {name: at for at, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], np.int64)


def smallest(blockers: NodeBlockers, nearest_rows: Nearest) -> SmallestChange | None:
    """The smallest change among all nodes; the lower bounds show when no later node can improve it."""
    best: tuple[NodeChange, int] | None = None
    for row, least in zip(nearest_rows.rows, nearest_rows.least, strict=True):
        if best is not None and least >= best[0].cost:
            break
        change = change_for(blockers, row)
        if change is not None and (best is None or change.cost < best[0].cost):
            best = change, row
    if best is None:
        return None
    change, row = best
    node = blockers.view.node(row)
    return SmallestChange(text=text_of(change.edits), node_id=node.id, node_name=node.name, edits=change.edits)


def near_miss(blockers: NodeBlockers, row: int) -> NearMiss:
    """A row's node and everything it lacks."""
    node = blockers.view.node(row)
    lacks = tuple(node_shortages(blockers, row))
    return NearMiss(node_id=node.id, node_name=node.name, datacenter=node.datacenter, shortfalls=lacks)
