"""Placing the allocations of one group: pick a node, take what it grants, update the ranking.

A group has one `Ranker`. Each placement takes the best row, asks its node for ports, cores and devices when the group
needs any, and reports the change to the ranker. A row that refuses is closed for the group and recorded with its
reason, so that a placement without any row knows all reasons.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk, NodeGrant
from yurt.scheduler.capacity.view import ClusterView, has_memory_max, is_spread_algorithm
from yurt.scheduler.devices.offers import has_topology
from yurt.scheduler.feasibility.distinct import Distinct
from yurt.scheduler.feasibility.masks import (
    BoolArray,
    Candidates,
    Feasibility,
    candidates,
    class_counts,
    feasibility,
    feasible_candidates,
)
from yurt.scheduler.feasibility.node_cache import answers_by_row, cached_answer
from yurt.scheduler.feasibility.volumes import VolumeClaims
from yurt.scheduler.ids import number_of
from yurt.scheduler.placing.exhausted_nodes import ExhaustedCounts
from yurt.scheduler.placing.preemption import PREEMPTION, is_allowed, preempt, preemption_score, situation
from yurt.scheduler.placing.ranking import Ranker, RankOptions
from yurt.scheduler.placing.runs import PlacementRun, place_run
from yurt.scheduler.placing.terms.registry import ALONE
from yurt.scheduler.placing.terms.term import UNIT, FloatArray
from yurt.scheduler.placing.top_k import IMPOSSIBLE, best_rows
from yurt.sdk.value import replace
from yurt.state.columns import CPU, DISK, MEMORY, SHAPE
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.job import Job, TaskGroup
from yurt.structs.resources import Resources


class PlacedAlloc(NamedTuple):
    """One more allocation: where, with what, why there, and whom it ends."""

    row: int
    grant: NodeGrant
    metrics: AllocationMetric
    preempted: tuple[Allocation, ...] = ()


class GroupPlacer:
    """Places allocations of one group."""

    def __init__(self, view: ClusterView, job: Job, group: TaskGroup, *, seed: int, own: Sequence[Allocation]) -> None:
        self.view = view
        self.job = job
        self.group = group
        self.ask = GroupAsk(group, with_memory_max=has_memory_max(view.snapshot, job))
        if self.ask.devices:
            self.ask.note_topology(_is_topology_told(view))
        self.candidates: Candidates = candidates(view.rows, job)
        self.feasible: Feasibility = feasibility(view.snapshot, job, group)
        self.distinct = Distinct(view.snapshot, job, group)
        self.volumes = VolumeClaims(view.snapshot, job, group)
        self.volumes_refused: dict[str, BoolArray] = {}
        """Rows that could not take the last allocation for its volumes, by reason."""
        self.mask: BoolArray = feasible_candidates(view.rows, job, self.candidates, self.feasible)
        salt = number_of(seed, "rank", group.name)
        self.ranker = Ranker(
            view,
            job,
            group,
            self.ask,
            mask=self.mask,
            options=RankOptions(is_spread_algorithm(view.snapshot, job), salt),
        )
        self._salt = salt
        self._preemptions: FloatArray = np.full(len(self.mask), np.nan)
        """Scores of preempting, where they are known: not a number elsewhere."""
        self._situations: dict[Hashable, float] = {}
        self._counted: tuple[ExhaustedCounts | None, AllocationMetric | None] = (None, None)
        """The counts of the last placement, and the metrics that show them."""
        self._seen: frozenset[int] | None = None
        for alloc in own:
            self.count(alloc, 1)
        self._close_refused()

    @property
    def can_restart(self) -> bool:
        """Whether an equal group of a new job can go on with the ranking: nothing but amounts leads from one to the
        next.
        """
        return self.can_run and not self.ranker.spread.is_used

    def restart(self, job: Job, group: TaskGroup) -> None:
        """Go on for an equal group of a job that has no allocations."""
        self.job, self.group = job, group
        self._preemptions[:] = np.nan
        self._situations.clear()
        self.ranker.restart(group.count)

    def count(self, alloc: Allocation, sign: int) -> None:
        """An allocation of the job that the plan leaves in place (or takes away)."""
        row = self.view.row(alloc.node_id)
        if row is None:
            return
        if self.distinct.is_used:
            self.distinct.count((row,), alloc.task_group, sign)
        if alloc.task_group == self.group.name:
            self.ranker.count_own([row], sign)

    def placed_elsewhere(self, row: int, group: str) -> None:
        """Another group of the job placed on the row."""
        self._preemptions[row] = np.nan
        if self.distinct.is_used:
            self.distinct.count((row,), group)
            self._close_refused()

    def placed_run_elsewhere(self, rows: Sequence[int], group: str) -> None:
        """Another group of the job placed on the rows."""
        for row in rows:
            self._preemptions[row] = np.nan
        if self.distinct.is_used:
            self.distinct.count(rows, group)
            self._close_refused()

    @property
    def can_run(self) -> bool:
        """Whether equal placements can be ordered at once: nothing but amounts decides where they fit."""
        return not (self.ask.is_exclusive or self.distinct.is_used or self.volumes.is_used)

    def run(self, count: int) -> tuple[list[int], Iterator[AllocationMetric]]:
        """Up to `count` more allocations, the same as so many times `place` without preemption: rows and metrics."""
        found = place_run(self.ranker, count)
        self._preemptions[found.rows] = np.nan
        return found.rows, self._metrics_of(found)

    def _metrics_of(self, run: PlacementRun) -> Iterator[AllocationMetric]:
        """The metrics of each placement, made when they are asked for: with what else is made of the placement."""
        ends = [start for start, _ in run.counts[1:]]
        ends.append(len(run.rows))
        for (start, counts), end in zip(run.counts, ends, strict=False):
            shared = self._showing(counts)
            for table in run.tables[start:end]:
                yield replace(shared, score_meta_data=table)

    def recount(self) -> None:
        """Allocations went away by other means: open what they had closed."""
        self.ranker.reopen()
        self._preemptions[:] = np.nan
        self._close_refused()

    def place(
        self,
        *,
        expected: int = 1,
        penalised: frozenset[int] = frozenset(),
        preferred: int | None = None,
        index: int = 0,
    ) -> PlacedAlloc | None:
        """One more allocation, the one with that index, or None when no node can take it."""
        ranker = self.ranker
        if self.volumes.is_used:
            self.look_at_volumes(index)
        while True:
            row = ranker.best(expected=expected, penalised=penalised, preferred=preferred)
            if row is None:
                return self._preempting()
            self._salt += 1
            grant = self._grant(row)
            if isinstance(grant, str):
                ranker.exhausted.refuse(row, grant)
                ranker.close(row)
                continue
            metrics = self._metrics(ranker.top(row, penalised))
            self._taken(row, grant)
            self.volumes.count(row, index)
            return PlacedAlloc(row, grant, metrics)

    def look_at_volumes(self, index: int) -> None:
        """Leave out the rows that cannot give the allocation with that index its volumes."""
        self.recount()
        self.volumes_refused = self.volumes.refused(index)
        for mask in self.volumes_refused.values():
            self.ranker.close_all(mask)

    def _taken(self, row: int, grant: NodeGrant) -> None:
        self.view.take(row, grant.usage)
        self.ranker.placed(row)
        if self.distinct.is_used:
            self.distinct.count((row,), self.group.name)
            self._close_refused()

    def _preempting(self) -> PlacedAlloc | None:
        """The placement whose victims matter least, tried only when there is room nowhere."""
        if not is_allowed(self.view, self.job):
            return None
        mask = self.mask
        for refused in self._refused_otherwise().values():
            mask = mask & ~refused
        for row in np.flatnonzero(mask & np.isnan(self._preemptions)).tolist():
            self._preemptions[row] = self._preemption_score(row)
        scores = np.where(mask, self._preemptions, IMPOSSIBLE)
        rows, _ = best_rows(scores, self.ranker.ties, 1)
        if not len(rows):
            return None
        row = int(rows[0])
        found = preempt(self.view, self.job, self.group, self.ask, row=row, salt=self._salt)
        assert found is not None
        grant, victims = found
        self.ranker.forget(row)
        meta = self.ranker.meta(row)
        shown = {**meta.scores, PREEMPTION.name: preemption_score(victims)}
        table = (replace(meta, scores=shown, norm_score=float(scores[row])),)
        metrics, _ = self._ruled_out(within=scores == IMPOSSIBLE)
        self._taken(row, grant)
        self.ranker.exhausted.forget()
        self._preemptions[row] = np.nan
        return PlacedAlloc(row, grant, replace(metrics, score_meta_data=table), victims)

    def _preemption_score(self, row: int) -> float:
        """How good it is to preempt on a row, minus infinity where it cannot be; rows in equal situations share it."""
        key = situation(self.view, self.job, self.ask, row)
        own = int(self.ranker.own[row])
        meta_key = None if key is None else (key, own, self.ranker.extras(row))
        if meta_key is not None and meta_key in self._situations:
            return self._situations[meta_key]
        score = IMPOSSIBLE
        found = preempt(self.view, self.job, self.group, self.ask, row=row, salt=self._salt)
        if found is not None:
            self.ranker.forget(row)
            scores = self.ranker.meta(row).scores
            parts = [value for name, value in scores.items() if self.ranker.terms.is_counted(name, value)]
            parts.append(preemption_score(found[1]))
            score = round(sum(parts) / len(parts) * UNIT) / UNIT
            for victim in found[1]:
                self.view.restore(victim)
            self.ranker.forget(row)
        if meta_key is not None:
            self._situations[meta_key] = score
        return score

    def place_on(self, row: int) -> PlacedAlloc | AllocationMetric:
        """One allocation on a given node, preempting others when that is allowed; or why it does not fit."""
        reasons = list(self.view.exhausted(row, self.ask.plain.usage))
        grant: NodeGrant | str = "" if reasons else self._grant(row)
        victims: tuple[Allocation, ...] = ()
        if isinstance(grant, str):
            reasons.extend([grant] if grant else [])
            may_preempt = is_allowed(self.view, self.job)
            found = (
                None
                if not may_preempt
                else preempt(self.view, self.job, self.group, self.ask, row=row, salt=self._salt)
            )
            if found is None:
                return self._refusal(row, reasons)
            grant, victims = found
        self._salt += 1
        metrics = replace(self._looked_at(), score_meta_data=(self._score_on(row, victims),))
        self.view.take(row, grant.usage)
        return PlacedAlloc(row, grant, metrics, victims)

    def _score_on(self, row: int, victims: tuple[Allocation, ...]) -> NodeScoreMeta:
        """The score of a node that is no choice among others: nothing in it compares nodes (semantics 26)."""
        self.ranker.forget(row)
        meta = self.ranker.meta(row)
        shown = {name: value for name, value in meta.scores.items() if name in ALONE}
        if victims:
            shown[PREEMPTION.name] = preemption_score(victims)
        parts = [value for name, value in shown.items() if self.ranker.terms.is_counted(name, value)]
        return replace(meta, scores=shown, norm_score=round(sum(parts) / len(parts) * UNIT) / UNIT)

    def _refusal(self, row: int, reasons: list[str]) -> AllocationMetric:
        mask = np.zeros(len(self.mask), np.bool_)
        mask[row] = True
        return AllocationMetric(
            nodes_evaluated=int(np.count_nonzero(self.candidates.mask)),
            nodes_filtered=int(np.count_nonzero(self.candidates.mask & ~self.feasible.mask)),
            nodes_in_pool=self.candidates.in_pool,
            node_pool=self.job.node_pool,
            nodes_available=self.candidates.available,
            constraint_filtered=self._filtered({}),
            nodes_exhausted=1,
            class_exhausted=class_counts(self.view.rows, mask),
            dimension_exhausted=dict.fromkeys(reasons, 1),
            resources_exhausted=self._lacking(mask),
        )

    def _grant(self, row: int) -> NodeGrant | str:
        if not self.ask.is_exclusive:
            return self.ask.plain
        grant = self.ask.grant(self.view.node(row), self.view.held(row), salt=self._salt)
        if not isinstance(grant, str):
            lacking = self.view.exhausted(row, grant.usage)
            if lacking:
                return lacking[0]
        return grant

    def _refused_otherwise(self) -> dict[str, BoolArray]:
        """Rows that other allocations refuse, of this job or as users of a volume."""
        return {**(self.distinct.refused() if self.distinct.is_used else {}), **self.volumes_refused}

    def _close_refused(self) -> None:
        for mask in self.distinct.refused().values() if self.distinct.is_used else ():
            self.ranker.close_all(mask)

    def _metrics(self, scores: tuple[NodeScoreMeta, ...]) -> AllocationMetric:
        """What was looked at, for a placement that is about to be made."""
        if self.distinct.is_used or self.volumes.is_used:
            metrics, _ = self._ruled_out()
        else:
            metrics = self._showing(self.ranker.counts())
        return replace(metrics, score_meta_data=scores)

    def _showing(self, counts: ExhaustedCounts) -> AllocationMetric:
        """What was looked at when so many nodes were exhausted; the same object for the same counts."""
        known, metrics = self._counted
        if metrics is None or known is not counts:
            metrics = self._looked_at()
            if counts.nodes:
                metrics = replace(
                    metrics,
                    nodes_exhausted=counts.nodes,
                    class_exhausted=counts.classes,
                    dimension_exhausted=counts.dimensions,
                )
            self._counted = (counts, metrics)
        return metrics

    def _looked_at(self) -> AllocationMetric:
        """What all placements of groups with the same constraints share."""

        def compute() -> AllocationMetric:
            filtered = self.candidates.mask & ~self.feasible.mask
            return AllocationMetric(
                nodes_evaluated=int(np.count_nonzero(self.candidates.mask)),
                nodes_filtered=int(np.count_nonzero(filtered)),
                nodes_in_pool=self.candidates.in_pool,
                node_pool=self.job.node_pool,
                nodes_available=self.candidates.available,
                class_filtered=class_counts(self.view.rows, filtered),
                constraint_filtered=self._filtered({}),
            )

        key = ("metric", self.job.datacenters, self.job.node_pool, self.feasible.key)
        found = cached_answer(self.view.rows, key, compute)
        assert isinstance(found, AllocationMetric)
        return found

    def failure(self) -> AllocationMetric:
        """Why no node could take one more: every constraint and every dimension with its number of nodes."""
        metrics, exhausted = self._ruled_out()
        return replace(metrics, resources_exhausted=self._lacking(exhausted))

    def _ruled_out(self, *, within: BoolArray | None = None) -> tuple[AllocationMetric, BoolArray]:
        """What was looked at and why it does not do, with the rows that are exhausted; of those only some."""
        base, rows = self.candidates.mask, self.view.rows
        refused = self._refused_otherwise()
        filtered = base & ~self.feasible.mask
        for mask in refused.values():
            filtered |= base & mask
        kept = base & ~filtered if within is None else base & ~filtered & within
        dimensions = {text: mask & kept for text, mask in sorted(self.ranker.exhausted.masks().items())}
        exhausted = np.zeros(len(base), np.bool_)
        for mask in dimensions.values():
            exhausted |= mask
        metrics = replace(
            self._looked_at(),
            nodes_filtered=int(np.count_nonzero(filtered)),
            class_filtered=class_counts(rows, filtered),
            constraint_filtered=self._filtered(refused),
            nodes_exhausted=int(np.count_nonzero(exhausted)),
            class_exhausted=class_counts(rows, exhausted),
            dimension_exhausted={text: n for text, m in dimensions.items() if (n := int(np.count_nonzero(m)))},
        )
        return metrics, exhausted

    def eligible_classes(self) -> dict[str, bool]:
        """For each computed class among the candidates, whether the group may ever use it."""
        rows = self.view.rows
        found: dict[str, bool] = {}
        for number, row in rows.row_of_shape.items():
            name = rows.shapes.values[number].computed_class
            if name and self._is_seen(number):
                found[name] = found.get(name, False) or bool(self.feasible.class_wide[row])
        return dict(sorted(found.items()))

    def _is_seen(self, shape: int) -> bool:
        if self._seen is None:
            self._seen = frozenset(self.view.offered[self.candidates.mask, SHAPE].tolist())
        return shape in self._seen

    def _filtered(self, refused: dict[str, BoolArray]) -> dict[str, int]:
        base = self.candidates.mask
        found = [*self.feasible.failing, *refused.items()]
        return {text: number for text, mask in found if (number := int(np.count_nonzero(mask & base)))}

    def _lacking(self, exhausted: BoolArray) -> dict[str, Resources]:
        """For each task what it asks of the dimensions that ran out somewhere."""
        if not exhausted.any():
            return {}
        view, asked = self.view, self.ask.plain.usage.amounts
        over = {
            column: bool((exhausted & (view.used[:, column] + asked[column] > view.offered[:, column])).any())
            for column in (CPU, MEMORY, DISK)
        }
        return {
            task.name: Resources(
                cpu=task.resources.cpu if over[CPU] else 0,
                memory_mb=task.resources.memory_mb if over[MEMORY] else 0,
                disk_mb=self.group.ephemeral_disk.size_mb if over[DISK] else 0,
            )
            for task in self.group.tasks
            if over[CPU] or over[MEMORY] or over[DISK]
        }


def _is_topology_told(view: ClusterView) -> bool:
    """Whether devices of any node tell where they are."""
    told = answers_by_row(
        view.snapshot, "device topology", lambda nodes: [has_topology((node,)) for node in nodes], without=False
    )
    return bool(told.any())
