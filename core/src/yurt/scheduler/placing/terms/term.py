"""A score term: its name, the condition under which it counts, and its changes by placements.

The score of a row is the mean of the terms that count. Terms are whole numbers of 1e-9 (`UNIT`), so that sums are exact
and scores compare alike on every machine.

A *kind* is declared once. The kinds without `make` follow from numbers that the ranker keeps anyway (usage, the group's
own allocations, penalized nodes, spreads, victims). The ranker asks these by name, because they are what the inner loop
consists of. All other terms are `ScoreTerm` objects that the ranker makes once for a group and reads as arrays: a group
to which a term does not apply pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.state.arrays import IntArray
from yurt.structs.job import Job, TaskGroup

FloatArray = npt.NDArray[np.float64]
UNIT: Final = 1_000_000_000
"""The number of units into which a score of one is divided for comparison."""


class TermContext(msgspec.Struct, frozen=True):
    """The inputs for creating a term.

    Of the job a term may read only what `warm_start` compares before it hands a ranking on to another job.
    """

    view: ClusterView
    job: Job
    group: TaskGroup
    ask: GroupAsk


class ScoreTerm(Protocol):
    """A term whose value on a row depends only on that row, never on placements on other rows."""

    @property
    def name(self) -> str:
        """The name of its kind."""
        ...

    @property
    def counts_at_zero(self) -> bool:
        """Whether a value of 0 counts for the mean of this group's scores."""
        ...

    @property
    def follows_placements(self) -> bool:
        """Whether a placement changes the row's value: only then are `refresh` and `update` called."""
        ...

    @property
    def values(self) -> IntArray:
        """The value of each row for one more allocation."""
        ...

    def refresh(self, rows: BoolArray) -> None:
        """Reevaluate these rows after changes of usage."""
        ...

    def update(self, row: int) -> None:
        """Reevaluate one row after a change of usage."""
        ...

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """The values of these rows for each of the next placements: one row of the result per row, or one column if a
        row's values are all equal."""
        ...


class TermKind(msgspec.Struct, frozen=True):
    """A kind of term: its name, the condition under which it counts, and the function that creates it for a group."""

    name: str
    """The key in `Scores`, in the API's spelling."""
    counts_at_zero: bool = False
    is_always_shown: bool = False
    """Whether score tables show a 0 if the term does not apply."""
    compares_nodes: bool = True
    """Whether it only makes sense in a comparison of nodes; score tables of system jobs, which choose no nodes, omit
    it."""
    make: Callable[[TermContext], ScoreTerm | None] | None = None
    """Creates the term for a group; None if it does not apply to the group."""


class FixedTerm(msgspec.Struct, frozen=True):
    """A term that placements do not change."""

    name: str
    values: IntArray
    counts_at_zero: bool = False
    follows_placements: bool = False

    def refresh(self, rows: BoolArray) -> None:
        """No effect."""

    def update(self, row: int) -> None:
        """No effect."""

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """The same value for every number of placements."""
        return self.values[rows][:, None]
