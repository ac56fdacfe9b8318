"""The metrics of placements: the number of evaluated nodes, and the reasons why nodes were ruled out.

What constraints rule out is the same for all placements of groups with equal constraints, and is kept with the columns
of the nodes. What capacity rules out is counted at each placement (`exhausted_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray, Candidates, Feasibility, class_counts
from yurt.scheduler.feasibility.node_cache import cached_answer
from yurt.scheduler.placing.exhausted_nodes import ExhaustedCounts
from yurt.sdk.value import replace
from yurt.state.columns import CPU, DISK, MEMORY, SHAPE
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.resources import Resources


class PlacementMetrics:
    """The metrics of one group on the candidates for its job."""

    def __init__(
        self,
        view: ClusterView,
        job: Job,
        group: TaskGroup,
        *,
        ask: GroupAsk,
        candidates: Candidates,
        feasible: Feasibility,
    ) -> None:
        self._view = view
        self._job = job
        self._group = group
        self._ask = ask
        self._candidates = candidates
        self._feasible = feasible
        self._counted: tuple[ExhaustedCounts | None, AllocationMetric | None] = (None, None)
        """The counts of the last placement, and the metrics with them."""
        self._seen: frozenset[int] | None = None
        """The shapes of the candidates."""

    def shared(self) -> AllocationMetric:
        """The part shared by all placements of groups with equal constraints."""

        def compute() -> AllocationMetric:
            filtered = self._candidates.mask & ~self._feasible.mask
            return AllocationMetric(
                nodes_evaluated=int(np.count_nonzero(self._candidates.mask)),
                nodes_filtered=int(np.count_nonzero(filtered)),
                nodes_in_pool=self._candidates.in_pool,
                node_pool=self._job.node_pool,
                nodes_available=self._candidates.available,
                class_filtered=class_counts(self._view.rows, filtered),
                constraint_filtered=self._filtered({}),
            )

        key = ("metric", self._job.datacenters, self._job.node_pool, self._feasible.key)
        metrics = cached_answer(self._view.rows, key, compute)
        assert isinstance(metrics, AllocationMetric)
        return metrics

    def showing(self, counts: ExhaustedCounts) -> AllocationMetric:
        """The metrics with this many exhausted nodes; the same object for equal counts."""
        last_counts, metrics = self._counted
        if metrics is None or last_counts is not counts:
            metrics = self.shared()
            if counts.nodes:
                metrics = replace(
                    metrics,
                    nodes_exhausted=counts.nodes,
                    class_exhausted=counts.classes,
                    dimension_exhausted=counts.dimensions,
                )
            self._counted = (counts, metrics)
        return metrics

    def ruled_out(
        self,
        refused: Mapping[str, BoolArray],
        exhausted_masks: Mapping[str, BoolArray],
        *,
        within: BoolArray | None = None,
    ) -> tuple[AllocationMetric, BoolArray]:
        """The metrics with the reasons of refusal and the exhausted rows; `within` restricts the rows."""
        base, rows = self._candidates.mask, self._view.rows
        filtered = base & ~self._feasible.mask
        for mask in refused.values():
            filtered |= base & mask
        remaining = base & ~filtered if within is None else base & ~filtered & within
        dimensions = {text: mask & remaining for text, mask in sorted(exhausted_masks.items())}
        exhausted = np.zeros(len(base), np.bool_)
        for mask in dimensions.values():
            exhausted |= mask
        metrics = replace(
            self.shared(),
            nodes_filtered=int(np.count_nonzero(filtered)),
            class_filtered=class_counts(rows, filtered),
            constraint_filtered=self._filtered(refused),
            nodes_exhausted=int(np.count_nonzero(exhausted)),
            class_exhausted=class_counts(rows, exhausted),
            dimension_exhausted={text: n for text, m in dimensions.items() if (n := int(np.count_nonzero(m)))},
        )
        return metrics, exhausted

    def of_refusal(self, row: int, reasons: list[str]) -> AllocationMetric:
        """The metrics of one row's refusal."""
        mask = np.zeros(len(self._candidates.mask), np.bool_)
        mask[row] = True
        return AllocationMetric(
            nodes_evaluated=int(np.count_nonzero(self._candidates.mask)),
            nodes_filtered=int(np.count_nonzero(self._candidates.mask & ~self._feasible.mask)),
            nodes_in_pool=self._candidates.in_pool,
            node_pool=self._job.node_pool,
            nodes_available=self._candidates.available,
            constraint_filtered=self._filtered({}),
            nodes_exhausted=1,
            class_exhausted=class_counts(self._view.rows, mask),
            dimension_exhausted=dict.fromkeys(reasons, 1),
            resources_exhausted=self.exhausted_resources(mask),
        )

    def exhausted_resources(self, exhausted: BoolArray) -> dict[str, Resources]:
        """Each task's request in the dimensions exhausted somewhere."""
        if not exhausted.any():
            return {}
        view, required = self._view, self._ask.plain.usage.amounts
        over = {
            column: bool((exhausted & (view.used[:, column] + required[column] > view.offered[:, column])).any())
            for column in (CPU, MEMORY, DISK)
        }
        return {
            task.name: Resources(
                cpu=task.resources.cpu if over[CPU] else 0,
                memory_mb=task.resources.memory_mb if over[MEMORY] else 0,
                disk_mb=self._group.ephemeral_disk.size_mb if over[DISK] else 0,
            )
            for task in self._group.tasks
            if over[CPU] or over[MEMORY] or over[DISK]
        }

    def eligible_classes(self) -> dict[str, bool]:
        """For each computed class among the candidates, whether the group may use it."""
        rows = self._view.rows
        eligible: dict[str, bool] = {}
        for number, row in rows.row_of_shape.items():
            name = rows.shapes.values[number].computed_class
            if name and self._is_seen(number):
                eligible[name] = eligible.get(name, False) or bool(self._feasible.class_wide[row])
        return dict(sorted(eligible.items()))

    def _filtered(self, refused: Mapping[str, BoolArray]) -> dict[str, int]:
        base = self._candidates.mask
        masks = [*self._feasible.failing, *refused.items()]
        return {text: number for text, mask in masks if (number := int(np.count_nonzero(mask & base)))}

    def _is_seen(self, shape: int) -> bool:
        if self._seen is None:
            self._seen = frozenset(self._view.offered[self._candidates.mask, SHAPE].tolist())
        return shape in self._seen
