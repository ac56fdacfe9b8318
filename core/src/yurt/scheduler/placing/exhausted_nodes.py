"""Counts exhausted nodes (feasible, but without capacity for one more), for the metrics of placements.

The metrics of a placement describe the moment of that placement. The counts are made from the arrays after large
changes and then follow single nodes as they fill up, so most placements share the counts of the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from yurt.scheduler.capacity.view import DIMENSIONS, MAX_ALLOCS, ClusterView
from yurt.scheduler.feasibility.masks import BoolArray, class_counts
from yurt.state.arrays import IntArray
from yurt.state.columns import ALLOCS, NODE_CLASS
from yurt.state.usage import Usage


class ExhaustedCounts(msgspec.Struct, frozen=True):
    """The number of exhausted nodes by class and by dimension; a node may lack several dimensions."""

    nodes: int
    classes: Mapping[str, int]
    dimensions: Mapping[str, int]

    def with_node(self, node_class: str, dimensions: Iterable[str]) -> ExhaustedCounts:
        """Add one node."""
        classes = _plus_one(self.classes, (node_class,)) if node_class else self.classes
        return ExhaustedCounts(self.nodes + 1, classes, _plus_one(self.dimensions, dimensions))


NONE: Final = ExhaustedCounts(0, {}, {})


CountsOfMask = dict[int, tuple[BoolArray, ExhaustedCounts]]
"""Counts of the rows without capacity in a mask, by the mask's identity; the value keeps the mask alive."""
COUNTS_MAX: Final = 16
"""The maximum number of masks whose counts are cached for the next attempt."""


class ExhaustedNodes:
    """The rows of `mask` without capacity for a usage, and those that refused for another reason."""

    def __init__(self, view: ClusterView, usage: Usage, mask: BoolArray) -> None:
        self.view = view
        self.counts: ExhaustedCounts | None = None
        """The present counts; None when they must be computed again."""
        self._usage = usage
        self._mask = mask
        self._refused: dict[str, set[int]] = {}
        self._of_state: CountsOfMask = {}
        """The counts of the rows as they are without the plan."""

    def forget(self, of_state: CountsOfMask | None = None) -> None:
        """Drop the counts after changes other than filled rows; `of_state` has the counts without the plan."""
        self.counts = None
        if of_state is not None:
            self._of_state = of_state

    def reopen(self) -> None:
        """Drop the refusals of rows, and the counts."""
        self._refused.clear()
        self.counts = None

    def fill(self, row: int) -> None:
        """Count a row that has become exhausted."""
        if self.counts is not None:
            self._add(row, self.view.exhausted(row, self._usage))

    def refuse(self, row: int, reason: str) -> None:
        """Count a row with capacity whose node refuses for another reason."""
        self._refused.setdefault(reason, set()).add(row)
        if self.counts is not None:
            self._add(row, (reason,))

    def refuse_all(self, rows: IntArray, reason: str) -> None:
        """As `refuse`, for several rows."""
        if len(rows):
            self._refused.setdefault(reason, set()).update(rows.tolist())
            self.counts = None

    def masks(self) -> dict[str, BoolArray]:
        """The rows that lack each dimension, and those that refused for each reason."""
        by_reason = {
            name: mask & self._mask for name, mask in exhausted_masks(self.view.look(), self.view.offered, self._usage)
        }
        for reason, rows in self._refused.items():
            mask = np.zeros(len(self._mask), np.bool_)
            mask[list(rows)] = True
            by_reason[reason] = by_reason[reason] | mask if reason in by_reason else mask
        return by_reason

    def count(self, impossible: BoolArray, *, is_of_state: bool) -> None:
        """Count the feasible rows without capacity; counts for a state without a plan are cached for later attempts."""
        cache, mask = self._of_state, self._mask
        cached = cache.get(id(mask)) if is_of_state else None
        if cached is not None:
            self.counts = cached[1]
            return
        closed = mask & impossible
        self.counts = self._counted(closed) if closed.any() else NONE
        if is_of_state:
            while len(cache) >= COUNTS_MAX:
                cache.pop(next(iter(tuple(cache))), None)
            cache[id(mask)] = (mask, self.counts)

    def filling(self, rows: IntArray, used: IntArray) -> Iterator[ExhaustedCounts]:
        """The counts as rows fill up one after another, computed in advance and kept."""
        assert self.counts is not None
        counts, offered, classes = self.counts, self.view.offered[rows], self.view.rows.classes.values
        dimensions: list[list[str]] = [[] for _ in range(len(rows))]
        for name, mask in exhausted_masks(used, offered, self._usage):
            for at in np.flatnonzero(mask).tolist():
                dimensions[at].append(name)
        for number, names in zip(offered[:, NODE_CLASS].tolist(), dimensions, strict=True):
            counts = counts.with_node(classes[number], names)
            yield counts

    def _counted(self, closed: BoolArray) -> ExhaustedCounts:
        rows = self.view.rows
        dimensions = {text: int(np.count_nonzero(mask & closed)) for text, mask in sorted(self.masks().items())}
        by_dimension = {text: number for text, number in dimensions.items() if number}
        return ExhaustedCounts(int(np.count_nonzero(closed)), class_counts(rows, closed), by_dimension)

    def _add(self, row: int, dimensions: Iterable[str]) -> None:
        assert self.counts is not None
        number = self.view.offered_on(row)[NODE_CLASS]
        self.counts = self.counts.with_node(self.view.rows.classes.values[number], dimensions)


def exhausted_masks(used: IntArray, offered: IntArray, usage: Usage) -> Iterator[tuple[str, BoolArray]]:
    """For each dimension, the rows that lack capacity for one more."""
    required = usage.amounts
    for column, name in DIMENSIONS:
        yield name, used[:, column] + required[column] > offered[:, column]
    limit = offered[:, ALLOCS]
    yield MAX_ALLOCS, (limit > 0) & (used[:, ALLOCS] + 1 > limit)


def _plus_one(counts: Mapping[str, int], names: Iterable[str]) -> Mapping[str, int]:
    """The counts by name, sorted, each of these increased by one."""
    counts_after = dict(counts)
    for name in names:
        counts_after[name] = counts_after.get(name, 0) + 1
    return counts_after if len(counts_after) == len(counts) else dict(sorted(counts_after.items()))
