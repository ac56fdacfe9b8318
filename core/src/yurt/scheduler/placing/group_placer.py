"""Places the allocations of one group: chooses a node, takes its grant, updates the ranking.

A group has one `Ranker`. Each placement takes the best row, asks its node for ports, cores and devices when the group
needs any, and reports the change to the ranker. A row that refuses is closed for the group and recorded with its
reason, so that a placement without any row knows all reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from yurt.scheduler.capacity.ask import GroupAsk, NodeGrant
from yurt.scheduler.capacity.limits import LimitedGrants
from yurt.scheduler.capacity.view import ClusterView, has_memory_max, is_spread_algorithm
from yurt.scheduler.devices.offers import has_topology
from yurt.scheduler.feasibility.device_trials import trial_runs_for
from yurt.scheduler.feasibility.distinct import Distinct
from yurt.scheduler.feasibility.masks import (
    BoolArray,
    Candidates,
    Feasibility,
    candidates,
    feasibility,
    feasible_candidates,
)
from yurt.scheduler.feasibility.node_cache import answers_by_row
from yurt.scheduler.feasibility.volumes import VolumeClaims, VolumeReason
from yurt.scheduler.ids import number_of
from yurt.scheduler.placing.device_refusals import RefusalsInTurn
from yurt.scheduler.placing.placement_metrics import PlacementMetrics
from yurt.scheduler.placing.preemption import PREEMPTION, preemption_score
from yurt.scheduler.placing.preemption_choice import PreemptionChoice
from yurt.scheduler.placing.ranking import Ranker, RankOptions
from yurt.scheduler.placing.runs import PlacementRun, place_run
from yurt.scheduler.placing.terms.registry import ALONE
from yurt.scheduler.placing.terms.term import UNIT
from yurt.sdk.value import replace
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import alloc_index
from yurt.structs.status import JOB_BATCH, JOB_SERVICE

RECLAIMING: Final = (JOB_BATCH, JOB_SERVICE)
"""Job types that reclaim capacity lent by their quota; system jobs do not, since they run on every node."""


class PlacedAlloc(msgspec.Struct, frozen=True):
    """A placement: its node, grant, scores and preempted allocations."""

    row: int
    grant: NodeGrant
    metrics: AllocationMetric
    preempted: tuple[Allocation, ...] = ()
    reclaimed_for: Mapping[str, str] = MappingProxyType({})
    """The quota for whose guarantee each preempted allocation ends, by allocation id."""


def group_ask(snapshot: Snapshot, job: Job, group: TaskGroup) -> GroupAsk:
    """What an allocation of the group asks of a node."""
    return GroupAsk(
        group,
        with_memory_max=has_memory_max(snapshot, job),
        trial_runs=trial_runs_for(snapshot, group),
        stores_parts=snapshot.stores_device_parts,
    )


class GroupPlacer:
    """Places allocations of one group."""

    def __init__(self, view: ClusterView, job: Job, group: TaskGroup, *, seed: int, own: Sequence[Allocation]) -> None:
        self.view = view
        self.job = job
        self.group = group
        self.ask = group_ask(view.snapshot, job, group)
        if self.ask.devices:
            self.ask.note_topology(_has_topology(view))
        self.candidates: Candidates = candidates(view.rows, job)
        self.feasible: Feasibility = feasibility(view.snapshot, job, group)
        self.distinct = Distinct(view.snapshot, job, group)
        self.volumes = VolumeClaims(view.snapshot, job, group, writers=view.volume_writers, is_leaving=view.is_released)
        self.volumes_refused: dict[VolumeReason, BoolArray] = {}
        """Rows that could not provide the last allocation's volumes, by reason."""
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
        self.limits: LimitedGrants | None = None
        """Cluster-wide limits, such as a quota, that the next grant must not exceed; None without any."""
        self._salt = salt
        self.metrics = PlacementMetrics(
            view, job, group, ask=self.ask, candidates=self.candidates, feasible=self.feasible
        )
        self._preemption = PreemptionChoice(view, job, group, ask=self.ask, ranker=self.ranker)
        for alloc in own:
            self.count(alloc, 1)
        if self.distinct.is_used:
            self._close_refused()

    @property
    def can_restart(self) -> bool:
        """Whether an equal group of a new job can continue with the ranking, because only amounts affect it."""
        return self.can_run and not self.ranker.spread.is_used

    def restart(self, job: Job, group: TaskGroup) -> None:
        """Continue for an equal group of a job without allocations."""
        self.job, self.group = job, group
        self._preemption.restart(job, group)
        self.ranker.restart(group.count)

    def count(self, alloc: Allocation, sign: int) -> None:
        """Count an allocation of the job that the plan leaves in place (or remove it)."""
        row = self.view.row(alloc.node_id)
        if row is None:
            return
        if self.distinct.is_used:
            self.distinct.count((row,), alloc.task_group, sign)
        if alloc.task_group == self.group.name:
            self.ranker.count_own([row], sign)

    def placed_elsewhere(self, row: int, group: str) -> None:
        """Record that another group of the job was placed on the row."""
        self._preemption.forget(row)
        if self.distinct.is_used:
            self.distinct.count((row,), group)
            self._close_refused()

    def placed_run_elsewhere(self, rows: Sequence[int], group: str) -> None:
        """Record that another group of the job was placed on the rows."""
        self._preemption.forget(rows)
        if self.distinct.is_used:
            self.distinct.count(rows, group)
            self._close_refused()

    @property
    def can_run(self) -> bool:
        """Whether equal placements can be ordered in one run, because only amounts decide where they fit."""
        return not (self.ask.is_exclusive or self.distinct.is_used or self.volumes.is_used)

    def run(self, count: int) -> tuple[list[int], Iterator[AllocationMetric]]:
        """Place up to `count` allocations, as repeated calls of `place` without preemption would; returns rows and
        metrics."""
        assert self.can_run, (self.group.name, "a run takes no ports, devices or volumes, and keeps nothing apart")
        placements = place_run(self.ranker, count)
        assert len(placements.rows) <= count, (self.group.name, len(placements.rows), count)
        self._preemption.forget(placements.rows)
        return placements.rows, self._metrics_of(placements)

    def _metrics_of(self, run: PlacementRun) -> Iterator[AllocationMetric]:
        """The metrics of each placement, computed on demand."""
        assert not run.rows or run.counts[0][0] == 0, (self.group.name, "every placement has its counts")
        ends = [start for start, _ in run.counts[1:]]
        ends.append(len(run.rows))
        for (start, counts), end in zip(run.counts, ends, strict=False):
            shared = self.metrics.showing(counts)
            for table in run.tables[start:end]:
                yield replace(shared, score_meta_data=table)

    def recount(self) -> None:
        """Reopen the rows that removed allocations had closed."""
        self.ranker.reopen()
        self._preemption.forget_all()
        self._preemption.forget_borrowers()
        if self.distinct.is_used:
            self._close_refused()

    def place(
        self,
        *,
        expected: int = 1,
        penalised: frozenset[int] = frozenset(),
        preferred: int | None = None,
        index: int = 0,
    ) -> PlacedAlloc | None:
        """Place the allocation with this index; None when no node can take it."""
        ranker = self.ranker
        if self.volumes.is_used:
            self.look_at_volumes(index)
        refusals: RefusalsInTurn | None = None
        while True:
            row = ranker.best(expected=expected, penalised=penalised, preferred=preferred)
            # A different salt for each try: two placements on one node must not draw the same dynamic port.
            if refusals is not None:
                self._salt += refusals.pass_over(row)
            if row is None:
                return self._preempting(index)
            self._salt += 1
            grant = self._grant(row)
            # The ranking counts amounts only; ports, cores and devices are checked on the best node alone.
            if isinstance(grant, str):
                refusals = refusals or RefusalsInTurn(ranker, is_plain=not penalised and preferred is None)
                refusals.add(row, grant)
                continue
            if refusals is not None:
                refusals.end()
            if self.ask.devices:
                # Otherwise the runners-up that are shown would depend on which refusals were known.
                ranker.fill_window(expected)
            metrics = self._metrics(ranker.top(row, penalised))
            self._count_placed(row, grant, index)
            return PlacedAlloc(row, grant, metrics)

    def look_at_volumes(self, index: int) -> None:
        """Exclude the rows that cannot provide the volumes of the allocation with this index."""
        self.recount()
        self.volumes_refused = self.volumes.refused(index)
        for mask in self.volumes_refused.values():
            self.ranker.close_all(mask)

    def _count_placed(self, row: int, grant: NodeGrant, index: int) -> None:
        self.view.take(row, grant.usage)
        self.ranker.placed(row)
        if self.volumes.is_used:
            self.volumes.count(row, index)
        if self.distinct.is_used:
            self.distinct.count((row,), self.group.name)
            self._close_refused()

    def _preempting(self, index: int) -> PlacedAlloc | None:
        """The placement with the least important victims, when no node has capacity; borrowers are tried first."""
        mask, refused = self.mask, self._refused_otherwise()
        for other in refused.values():
            mask = mask & ~other
        reclaimed = self._reclaimed(mask, index)
        if reclaimed is not None:
            return reclaimed
        if not self._preemption.is_allowed:
            return None
        choice = self._preemption.best(mask, self._salt)
        if choice is None or self._exceeds(choice.grant):
            return None
        exhausted = self.ranker.exhausted
        metrics, _ = self.metrics.ruled_out(refused, exhausted.masks(), within=choice.impossible)
        self._count_placed(choice.row, choice.grant, index)
        exhausted.forget()
        self._preemption.forget(choice.row)
        return PlacedAlloc(choice.row, choice.grant, replace(metrics, score_meta_data=(choice.meta,)), choice.victims)

    def reclaim(self, *, index: int = 0) -> PlacedAlloc | None:
        """Place the allocation with this index by ending allocations of borrowers."""
        if self.volumes.is_used:
            self.look_at_volumes(index)
        mask = self.mask
        for other in self._refused_otherwise().values():
            mask = mask & ~other
        return self._reclaimed(mask, index)

    def _reclaimed(self, mask: BoolArray, index: int) -> PlacedAlloc | None:
        guarantees = self.view.guarantees
        if guarantees is None or self.job.type not in RECLAIMING:
            return None
        self._salt += 1
        choice = self._preemption.reclaim(mask, exceeds=self._exceeds_after, salt=self._salt)
        if choice is None:
            return None
        tables = self.ranker.tables
        tables.forget(choice.row)
        meta = tables.meta(choice.row)
        score = preemption_score(choice.victims, choice.loss[1])
        meta = replace(meta, scores={**meta.scores, PREEMPTION.name: score})
        refused = self._refused_otherwise()
        metrics, _ = self.metrics.ruled_out(refused, self.ranker.exhausted.masks())
        self._count_placed(choice.row, choice.grant, index)
        self.ranker.exhausted.forget()
        self._preemption.forget_all()
        metrics = replace(metrics, score_meta_data=(meta,))
        return PlacedAlloc(choice.row, choice.grant, metrics, choice.victims, choice.reclaimed_for)

    def _exceeds_after(self, grant: NodeGrant, ended: Sequence[Allocation]) -> bool:
        return self.limits is not None and bool(self.limits.refuses_after(grant.usage, ended))

    def place_on(self, row: int, name: str) -> PlacedAlloc | AllocationMetric:
        """Place the allocation of this name on a given node, with preemption if permitted; or return the reason why it
        does not fit."""
        if self.volumes.is_used and (writer := self.volumes.other_writer(row, name)):
            return self.metrics.of_refusal(row, [writer])
        reasons = list(self.view.exhausted(row, self.ask.plain.usage))
        grant: NodeGrant | str = "" if reasons else self._grant(row)
        victims: tuple[Allocation, ...] = ()
        if isinstance(grant, str):
            reasons.extend([grant] if grant else [])
            choice = self._preemption.on_row(row, self._salt) if self._preemption.is_allowed else None
            if choice is None or self._exceeds(choice[0]):
                return self.metrics.of_refusal(row, reasons)
            grant, victims = choice
        self._salt += 1
        metrics = replace(self.metrics.shared(), score_meta_data=(self._score_on(row, victims),))
        self.view.take(row, grant.usage)
        if self.volumes.is_used:
            self.volumes.count(row, alloc_index(name))
        return PlacedAlloc(row, grant, metrics, victims)

    def _score_on(self, row: int, victims: tuple[Allocation, ...]) -> NodeScoreMeta:
        """The score of a given node, without terms that compare nodes."""
        self.ranker.tables.forget(row)
        meta = self.ranker.tables.meta(row)
        shown = {name: value for name, value in meta.scores.items() if name in ALONE}
        if victims:
            shown[PREEMPTION.name] = preemption_score(victims)
        parts = [value for name, value in shown.items() if self.ranker.terms.is_counted(name, value)]
        return replace(meta, scores=shown, norm_score=round(sum(parts) / len(parts) * UNIT) / UNIT)

    def _grant(self, row: int) -> NodeGrant | str:
        if not self.ask.is_exclusive:
            return self.ask.plain
        grant = self.ask.grant(self.view.node(row), self.view.in_use(row), salt=self._salt)
        if not isinstance(grant, str):
            exhausted = self.view.exhausted(row, grant.usage)
            if exhausted:
                return exhausted[0]
            return self._exceeds(grant) or grant
        return grant

    def _exceeds(self, grant: NodeGrant) -> str:
        """The excess of a cluster-wide limit by a grant; empty when it fits."""
        return "" if self.limits is None else self.limits.refuses(grant.usage)

    def _refused_otherwise(self) -> dict[str, BoolArray]:
        """Rows refused because of other allocations: of this job, or of other users of a volume."""
        refused = self.distinct.refused() if self.distinct.is_used else {}
        return refused | {reason.text: mask for reason, mask in self.volumes_refused.items()}

    def _close_refused(self) -> None:
        for mask in self.distinct.refused().values():
            self.ranker.close_all(mask)

    def _metrics(self, scores: tuple[NodeScoreMeta, ...]) -> AllocationMetric:
        """The metrics for the next placement."""
        if self.distinct.is_used or self.volumes.is_used:
            metrics, _ = self.metrics.ruled_out(self._refused_otherwise(), self.ranker.exhausted.masks())
        else:
            metrics = self.metrics.showing(self.ranker.counts())
        return replace(metrics, score_meta_data=scores)

    def failure(self) -> AllocationMetric:
        """The metrics of a failed placement: every failed constraint and dimension with its number of nodes."""
        metrics, exhausted = self.metrics.ruled_out(self._refused_otherwise(), self.ranker.exhausted.masks())
        return replace(metrics, resources_exhausted=self.metrics.exhausted_resources(exhausted))


def _has_topology(view: ClusterView) -> bool:
    """Whether any node reports the topology of its devices."""
    has_location = answers_by_row(
        view.snapshot, "device topology", lambda nodes: [has_topology((node,)) for node in nodes], without=False
    )
    return bool(has_location.any())
