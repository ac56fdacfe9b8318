"""The fitness of all rows for one request, and the rows with capacity for one more.

Attempts that follow each other ask for the same on nearly the same state. So the arrays of the last asks are kept with
the columns of the nodes, and the next attempt evaluates only the rows whose usage has changed since.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk, mhz_of_core
from yurt.scheduler.capacity.view import DIMENSIONS, ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.feasibility.node_cache import answers_by_row
from yurt.scheduler.placing.exhausted_nodes import CountsOfMask
from yurt.scheduler.placing.terms.binpack import Binpack
from yurt.state.arrays import IntArray, numbered
from yurt.state.columns import ALLOCS, CPU, USED_WIDTH, Chunk

FITS_MAX: Final = 16
"""The maximum number of requests whose fitness is cached for the next attempt."""
FEW_ROWS: Final = 32
"""Up to this number of rows, each is evaluated separately."""
FEW_CHANGED: Final = 4
"""If more than one in this number of rows changed, all are recomputed: plain arrays are faster than selected rows."""


class Fitness(msgspec.Struct, frozen=True):
    """The fitness and capacity of all rows for one request, with the chunks they were computed from."""

    chunks: tuple[Chunk, ...]
    binpacks: IntArray
    has_capacity: BoolArray
    counts: CountsOfMask
    """Cached counts of the rows without a plan."""


_Key = tuple[tuple[int, ...], bool]
"""The request, and whether the algorithm spreads."""


class FitnessTable:
    """The fitness of all rows, or of one, for one group's request."""

    def __init__(self, view: ClusterView, ask: GroupAsk, binpack: Binpack) -> None:
        self._view = view
        self._usage = ask.plain.usage
        self._binpack = binpack
        self._core_mhz = _core_mhz(view, ask) if ask.cores else None
        """The MHz that the reserved cores of one more allocation would add on each row."""
        self._cache: dict[tuple[int, ...], tuple[int, bool]] = {}
        """The fitness and whether one more fits, by used and offered amounts."""

    def of_all(self) -> Fitness:
        """The fitness of all rows; cached between attempts, which recompute only changed rows."""
        view = self._view
        cache: dict[_Key, Fitness] = view.rows.lasting.setdefault("fits", {})
        key = (self._usage.amounts, self._binpack.prefers_empty)
        if self._core_mhz is not None:
            used = self._with_cores(view.used)
            return Fitness(
                (), self._binpack.of_rows(used, view.offered), self._has_capacity(view.used, view.offered), {}
            )
        cached = cache.get(key)
        changed = None if cached is None else view.columns.changed_rows(cached.chunks)
        changed = None if changed is None else [*changed, *view.changed_rows()]
        if cached is None or changed is None or len(changed) * FEW_CHANGED > len(view.offered):
            used, offered = view.used, view.offered
            fitness = Fitness(
                view.columns.chunks, self._binpack.of_rows(used, offered), self._has_capacity(used, offered), {}
            )
        else:
            fitness = self._updated(cached, changed) if changed else cached
        # A view with a plan holds for this attempt only; cached results must depend on the state alone.
        if fitness is not cached and view.generation == 0:
            while len(cache) >= FITS_MAX:
                cache.pop(next(iter(tuple(cache))), None)
            cache[key] = fitness
        return fitness

    def _with_cores(self, used: IntArray) -> IntArray:
        """The usage plus the cores that one more would reserve."""
        total = used.copy()
        total[:, CPU] += 0 if self._core_mhz is None else self._core_mhz
        return total

    def _updated(self, cached: Fitness, changed: list[int]) -> Fitness:
        view, chunks = self._view, self._view.columns.chunks
        binpacks, has_capacity = cached.binpacks.copy(), cached.has_capacity.copy()
        if len(changed) <= FEW_ROWS:
            for row in changed:
                binpacks[row], has_capacity[row] = self.of_row(row)
            is_same = all(cached.has_capacity.item(row) and has_capacity.item(row) for row in changed)
        else:
            rows = np.array(changed, np.int64)
            used, offered = view.used[rows], view.offered[rows]
            binpacks[rows], has_capacity[rows] = self._binpack.of_rows(used, offered), self._has_capacity(used, offered)
            is_same = bool((cached.has_capacity[rows] & has_capacity[rows]).all())
        # The counts of exhausted rows stay valid if the changed rows had capacity before and have it now.
        is_same &= all(now.offered is then.offered for now, then in zip(chunks, cached.chunks, strict=True))
        return Fitness(chunks, binpacks, has_capacity, cached.counts if is_same else {})

    def _has_capacity(self, used: IntArray, offered: IntArray) -> BoolArray:
        """Rows with capacity for one more."""
        required = self._usage.amounts
        limit = offered[:, ALLOCS]
        has_capacity: BoolArray = (limit == 0) | (used[:, ALLOCS] < limit)
        for column, _ in DIMENSIONS:
            has_capacity &= used[:, column] + required[column] <= offered[:, column]
        return has_capacity

    def of_row(self, row: int) -> tuple[int, bool]:
        """The fitness of one row, and whether it has capacity."""
        view = self._view
        used, offered = view.used_on(row), view.offered_on(row)
        mhz = 0 if self._core_mhz is None else self._core_mhz.item(row)
        key = (*used, *offered[:USED_WIDTH], mhz)
        result = self._cache.get(key)
        if result is None:
            fitness = self._binpack.of_row(used, offered, mhz)
            result = self._cache[key] = (fitness, not view.exhausted(row, self._usage))
        return result


def _core_mhz(view: ClusterView, ask: GroupAsk) -> IntArray:
    """For each row, the MHz of the cores that a request reserves."""
    of_one = answers_by_row(view.snapshot, "MHz of a core", lambda nodes: list(map(mhz_of_core, nodes)), without=0)
    kinds, firsts = numbered(of_one)
    return np.array([ask.cpu_of_cores(mhz) for mhz in of_one[firsts].tolist()], np.int64)[kinds]
