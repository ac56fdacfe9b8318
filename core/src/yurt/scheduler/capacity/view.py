"""The cluster after the plan so far: the snapshot's columns with the plan's stops and placements applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from yurt.state.arrays import IntArray, tally
from yurt.state.columns import ALLOCS, CORES, CPU, DISK, MEMORY
from yurt.state.exclusive_resources import NOTHING_IN_USE, ExclusiveResources, with_usage
from yurt.state.store import Snapshot
from yurt.state.usage import Usage, is_using, usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.volumes.request import VolumeRequest

if TYPE_CHECKING:
    from yurt.scheduler.capacity.guarantees import Guarantees

DIMENSIONS = ((CPU, "cpu"), (MEMORY, "memory"), (DISK, "disk"))
MAX_ALLOCS = "max allocations exceeded"


class ClusterView:
    """The mutable view of one attempt; the snapshot does not change."""

    def __init__(self, snapshot: Snapshot, now: int = 0) -> None:
        """`now` is the time of the attempt; only the choice of victims depends on it."""
        self.snapshot = snapshot
        self.now = now
        self.guarantees: Guarantees | None = None
        """Guarantees that preemption must keep; None without any."""
        self.columns = snapshot.columns
        self.rows = snapshot.columns.nodes
        self.offered: IntArray = self.rows.offered
        self._used: IntArray | None = None
        self._used_in_plan: dict[int, list[int]] = {}
        """The usage of changed rows, until the number of these makes a copy of the whole array cheaper."""
        self._offers: dict[int, list[int]] = {}
        """The capacity of rows that were read one by one."""
        self._in_use: dict[str, ExclusiveResources] = {}
        self._released: set[str] = set()
        self._usages: dict[tuple[int, int, str], Usage] = {}
        self.volume_writers: dict[tuple[int, str], list[VolumeRequest]] = {}
        """The requests of the plan's placements to write to host volumes, by the row and the volume's name."""
        self.generation = 0
        """A number that grows with every change of usage."""

    def usage_of(self, alloc: Allocation) -> Usage:
        """The usage of an allocation; cached for equal resources."""
        key = (id(alloc.allocated_resources), id(alloc.job), alloc.task_group)
        usage = self._usages.get(key)
        if usage is None:
            usage = self._usages[key] = usage_of(alloc)
        return usage

    @property
    def used(self) -> IntArray:
        """The usage of all rows; call again after a change."""
        if self._used is None:
            if not self._used_in_plan:
                return self.columns.used
            self._used = self.look()
            self._used_in_plan.clear()
        return self._used

    def look(self) -> IntArray:
        """`used` for a single read: `changed_rows` still reports the same rows afterwards."""
        if self._used is not None or not self._used_in_plan:
            return self.used
        used = self.columns.used.copy(order="F")
        used[list(self._used_in_plan)] = list(self._used_in_plan.values())
        return used

    def changed_rows(self) -> list[int]:
        """The rows whose usage the plan changes."""
        if self._used is None:
            return list(self._used_in_plan)
        changed: list[int] = np.flatnonzero((self._used != self.columns.used).any(axis=1)).tolist()
        return changed

    def used_on(self, row: int) -> list[int]:
        """The usage of one row."""
        if self._used is not None:
            amounts: list[int] = self._used[row].tolist()
            return amounts
        planned = self._used_in_plan.get(row)
        return self.columns.used_on(row) if planned is None else planned

    def offered_on(self, row: int) -> list[int]:
        """The capacity of one row."""
        offered = self._offers.get(row)
        if offered is None:
            offered = self._offers[row] = self.offered[row].tolist()
        return offered

    def node(self, row: int) -> Node:
        """The node of a row."""
        return self.snapshot.nodes[self.rows.ids[row]]

    def row(self, node_id: str) -> int | None:
        """The row of a node, or None for a missing node."""
        return self.columns.rows.get(node_id)

    def in_use(self, row: int) -> ExclusiveResources:
        """The exclusive resources in use on a node."""
        node_id = self.rows.ids[row]
        planned = self._in_use.get(node_id)
        return self.columns.in_use.get(node_id, NOTHING_IN_USE) if planned is None else planned

    @property
    def rows_in_plan(self) -> list[int]:
        """The rows of which the plan changes the exclusive resources."""
        return [self.columns.rows[node_id] for node_id in self._in_use]

    def is_in_plan(self, row: int) -> bool:
        """Whether the plan changes the exclusive resources of the row."""
        return self.rows.ids[row] in self._in_use

    def release(self, alloc: Allocation) -> None:
        """Free the resources of an allocation that the plan stops."""
        if is_using(alloc) and alloc.id not in self._released:
            self._released.add(alloc.id)
            self._count(alloc, -1)

    def restore(self, alloc: Allocation) -> None:
        """Undo `release`."""
        if alloc.id in self._released:
            self._released.remove(alloc.id)
            self._count(alloc, 1)

    def is_released(self, alloc_id: str) -> bool:
        """Whether the plan stops the allocation."""
        return alloc_id in self._released

    def take(self, row: int, usage: Usage, *, sign: int = 1) -> None:
        """Add a placement on a row, or remove one with `sign` -1."""
        self.generation += 1
        used = self.used_on(row) if self._used is None else self._used[row]
        used[CPU] += sign * usage.cpu
        used[MEMORY] += sign * usage.memory
        used[DISK] += sign * usage.disk
        used[CORES] += sign * len(usage.cores)
        used[ALLOCS] += sign
        if self._used is None:
            self._used_in_plan[row] = used
        if usage.is_exclusive:
            self._in_use[self.rows.ids[row]] = with_usage(self.in_use(row), usage, sign)

    def take_rows(self, rows: IntArray, usage: Usage) -> None:
        """Add placements without exclusive resources, one for each occurrence of a row."""
        assert not usage.is_exclusive, "ports, cores and devices are granted one placement at a time"
        self.generation += 1
        rows, numbers = tally(rows)
        if self._used is None:
            self._used = self.used.copy(order="F") if self.used is self.columns.used else self.used
        self._used[rows] += numbers[:, None] * np.array(usage.amounts, np.int64)

    def exhausted(self, row: int, usage: Usage) -> list[str]:
        """The dimensions in which a usage exceeds a row's free capacity."""
        used, offered, required = self.used_on(row), self.offered_on(row), usage.amounts
        dimensions = [name for column, name in DIMENSIONS if used[column] + required[column] > offered[column]]
        if 0 < offered[ALLOCS] < used[ALLOCS] + 1:
            dimensions.append(MAX_ALLOCS)
        return dimensions

    def _count(self, alloc: Allocation, sign: int) -> None:
        row = self.row(alloc.node_id)
        if row is not None:
            self.take(row, self.usage_of(alloc), sign=sign)
            assert self.used_on(row)[ALLOCS] >= 0, (alloc.id, "what goes was counted before")


def has_memory_max(snapshot: Snapshot, job: Job) -> bool:
    """Whether the job's node pool has memory oversubscription."""
    pool = snapshot.node_pools.get(job.node_pool)
    if pool is not None and pool.scheduler_configuration is not None:
        override = pool.scheduler_configuration.memory_oversubscription_enabled
        if override is not None:
            return override
    return snapshot.scheduler_config.memory_oversubscription_enabled


def is_spread_algorithm(snapshot: Snapshot, job: Job) -> bool:
    """Whether the job's node pool spreads usage over nodes instead of bin packing."""
    pool = snapshot.node_pools.get(job.node_pool)
    override = (
        pool.scheduler_configuration.scheduler_algorithm if pool is not None and pool.scheduler_configuration else ""
    )
    return (override or snapshot.scheduler_config.scheduler_algorithm) == "spread"
