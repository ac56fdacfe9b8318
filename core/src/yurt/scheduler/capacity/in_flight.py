"""Plans in flight, accepted but not yet stored, added to a state.

Only the usage that the plans add to nodes is laid over: it is the only way in which one job's plan can invalidate
another's. Schedulers of other jobs and the plan check read nothing else of a job. A stop frees nothing until the
client confirms it, here as in the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import attrgetter

import numpy as np

from yurt.sdk.value import replace
from yurt.state import Change, Snapshot
from yurt.state.arrays import IntArray
from yurt.state.columns import CHUNK, Columns
from yurt.state.usage import Usage, usage_of_resources
from yurt.structs.plan import Plan

NodeUsages = list[tuple[Usage, list[str]]]
"""Usages, each with the ids of its nodes; a node may occur more than once."""
_Amounts = list[tuple[Usage, list[int] | IntArray]]
"""Usages with the rows of existing nodes, as an array when there are many."""


def with_plans(snapshot: Snapshot, plans: Iterable[Plan]) -> Snapshot:
    """The snapshot plus the usage of the plans' placements and updates; stored ones are not counted twice."""
    return _with_usages(snapshot, [(plan, node_usages(snapshot, plan)) for plan in plans])


def _with_usages(snapshot: Snapshot, plans: Iterable[tuple[Plan, NodeUsages]]) -> Snapshot:
    columns, ahead = snapshot.columns, list(snapshot.ahead)
    for plan, usages in plans:
        if usages:
            columns = columns.with_usage_of(usages)
            ahead.append(plan)
        changes = tuple(_changes(snapshot, plan))
        if changes:
            columns = columns.apply(changes)
    return snapshot if columns is snapshot.columns else snapshot.with_columns(columns, tuple(ahead))


MANY = 64
"""From this number of placements on, plans are added to the state as one sum."""
FEW = 8
"""Up to this number of rows, each is counted separately."""


class InFlightPlans:
    """Plans being written, each stored completely or not at all, and the state that includes them.

    The view of one state grows with each plan that is added. When the state moves on, what the plans take together is
    laid over the new one: as a sum by row, kept from one state to the next, for whatever takes nothing exclusive.
    """

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._state: Snapshot | None = None
        self._view: Snapshot | None = None
        self._usage = _InFlightUsage()

    def __len__(self) -> int:
        return len(self._plans)

    def add(self, state: Snapshot, plans: Sequence[Plan]) -> None:
        """Add plans made and checked on the view of `state`."""
        view, added = self.view(state), [(plan, node_usages(state, plan)) for plan in plans]
        for plan, usages in added:
            self._plans[id(plan)] = plan
            self._usage.add(state, plan, usages)
        is_small = sum([len(plan.placements) for plan in plans]) < MANY
        self._state, self._view = state, _with_usages(view, added) if is_small else None

    def remove(self, plans: Iterable[Plan]) -> None:
        """Remove plans that are stored or were abandoned."""
        for plan in plans:
            if self._plans.pop(id(plan), None) is not None:
                self._usage.remove(plan)
                self._state = self._view = None

    def view(self, state: Snapshot) -> Snapshot:
        """The state including all plans in flight.

        Without plans none is kept: where nothing more is placed, all rows of an old state would stay in memory.
        """
        if not self._plans:
            self._state = self._view = None
            return state
        if self._view is None or state is not self._state:
            self.remove(self._stored(state))
            self._view, self._state = self._laid_over(state), state
        return self._view

    def _stored(self, state: Snapshot) -> list[Plan]:
        """The plans that the state contains; they are stored in the order in which they were added."""
        return list(takewhile(partial(_is_stored, state), filter(attrgetter("placements"), self._plans.values())))

    def _laid_over(self, state: Snapshot) -> Snapshot:
        if not self._plans:
            return state
        columns = self._usage.over(state)
        if columns is None:
            return with_plans(state, self._plans.values())
        return state.with_columns(columns, tuple(self._plans.values()))


class _InFlightUsage:
    """The total usage of plans as sums by row; incomplete while a plan uses exclusive resources."""

    def __init__(self) -> None:
        self._sums: IntArray = np.zeros((0, 0), np.int64)
        self._uses: Counter[int] = Counter()
        """The number of usages of plans in each chunk of rows."""
        self._rows: object = None
        self._parts: dict[int, tuple[Plan, _Amounts]] = {}
        self._others: set[int] = set()
        """Plans that use exclusive resources or change stored allocations."""

    def add(self, state: Snapshot, plan: Plan, usages: NodeUsages) -> None:
        if state.columns.rows is not self._rows:
            self._begin(state)
        amounts = _amounts(state, plan, usages)
        if amounts is None:
            self._others.add(id(plan))
            return
        self._parts[id(plan)] = (plan, amounts)
        self._count(amounts, 1)

    def remove(self, plan: Plan) -> None:
        self._others.discard(id(plan))
        part = self._parts.pop(id(plan), None)
        if part is not None:
            self._count(part[1], -1)

    def _count(self, amounts: _Amounts, sign: int) -> None:
        """Add or subtract a plan's usage."""
        for usage, rows in amounts:
            signed = np.array(usage.amounts, np.int64) * sign
            if isinstance(rows, list):
                for row in rows:
                    self._sums[row] += signed
                chunks = list({row // CHUNK for row in rows})
            else:
                np.add.at(self._sums, rows, signed)
                chunks = np.bincount(rows // CHUNK).nonzero()[0].tolist()
            for number in chunks:
                self._uses[number] += sign
                assert self._uses[number] >= 0, (number, "a plan is removed as often as it was added")

    def over(self, state: Snapshot) -> Columns | None:
        """The state's columns plus the sums, or None when the sums are incomplete."""
        if self._others:
            return None
        if state.columns.rows is not self._rows:
            self._begin(state)
        return state.columns.plus(self._sums, [number for number, uses in self._uses.items() if uses])

    def _begin(self, state: Snapshot) -> None:
        """Compute the sums again, after nodes were added or removed and rows may have moved."""
        columns = state.columns
        self._rows, self._sums = columns.rows, np.zeros(columns.used.shape, np.int64)
        plans = [part[0] for part in self._parts.values()]
        self._parts.clear()
        self._uses.clear()
        for plan in plans:
            self.add(state, plan, node_usages(state, plan))


def _amounts(state: Snapshot, plan: Plan, usages: NodeUsages) -> _Amounts | None:
    """The amounts and rows of a plan; None when it also uses exclusive resources."""
    row_of = state.columns.rows.get
    if any(usage.is_exclusive for usage, _ in usages) or any(update.resources is not None for update in plan.in_place):
        return None
    usage_rows = [(usage, [row for row in map(row_of, node_ids) if row is not None]) for usage, node_ids in usages]
    return [(usage, rows if len(rows) < FEW else np.array(rows, np.int64)) for usage, rows in usage_rows]


def _is_stored(state: Snapshot, plan: Plan) -> bool:
    """Whether the state contains the plan, judged by its placements."""
    return plan.placements[0].id in state.allocs


def node_usages(snapshot: Snapshot, plan: Plan) -> NodeUsages:
    """The usage of the plan's allocations by node, empty if it is stored; a plan is stored completely or not at all."""
    usages: NodeUsages = []
    allocs, placements = snapshot.allocs, plan.placements
    if not placements or (placements[0].id in allocs and placements[-1].id in allocs):
        return usages
    resources, group = None, ""
    node_ids: list[str] = []
    # Placements of a run share their resources object, so they are one usage with many nodes.
    for placement in placements:
        if placement.resources is not resources or placement.task_group != group:
            resources, group, node_ids = placement.resources, placement.task_group, []
            job = snapshot.version(plan.namespace, plan.job_id, placement.job_version)
            usage = usage_of_resources(resources, job.group(group) if job is not None else None)
            usages.append((usage, node_ids))
        node_ids.append(placement.node_id)
    assert sum([len(each) for _, each in usages]) == len(placements), "each placement takes once"
    return usages


def _changes(snapshot: Snapshot, plan: Plan) -> Iterator[Change]:
    for update in plan.in_place:
        before = snapshot.allocs.get(update.id)
        if before is not None and update.resources is not None:
            yield Change("allocs", update.id, before, replace(before, allocated_resources=update.resources))
