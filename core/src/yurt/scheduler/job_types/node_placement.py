"""Placement on given nodes, for system jobs: the nodes are not chosen, so each refusal is a separate failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from yurt.scheduler.capacity.limits import LimitCheck, LimitedGrants
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.placing.group_placer import GroupPlacer, PlacedAlloc
from yurt.scheduler.reconcile.results import PlacementRequest
from yurt.sdk.value import replace
from yurt.state.namespace_usage import counted
from yurt.structs.alloc import Allocation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.resources import Resources


class GroupTargets(NamedTuple):
    """A group's targets: replacements on their nodes, and new allocations by row."""

    placer: GroupPlacer
    destructive: list[PlacementRequest]
    fresh: list[tuple[int, PlacementRequest]]


class NodePlacement:
    """Places the requests of a system job.

    `failed_nodes` lists for each node the groups without capacity there. `limited` has the pairs of a node and a group
    that a cluster-wide limit refused before the node was looked at, `limited_grants` those that it refused because of
    what the node would grant; both with the limit's name. `failed_fresh` counts for each group those of its new
    allocations, which replace nothing, that found none.
    """

    def __init__(
        self, view: ClusterView, draft: PlanDraft, limits: LimitCheck, counts: Mapping[str, dict[str, int]]
    ) -> None:
        self.failed_nodes: dict[str, set[str]] = {}
        self.limited: dict[tuple[str, str], str] = {}
        self.limited_grants: dict[tuple[str, str], str] = {}
        self.failed_fresh: dict[str, int] = {}
        self._view = view
        self._draft = draft
        self._limits = limits
        self._counts = counts
        self._refused: dict[str, str] = {}
        """The name of the limit that refused a new allocation, by group. All new allocations of a group ask for the
        same, so the refusal holds for every node until something is placed: a full quota is computed once, and not once
        for each node of the cluster."""
        self._coalesced: dict[str, int] = {}
        """Refusals of that kind that `draft.failed` does not count yet, by group."""

    def place_all(self, targets: Iterable[GroupTargets]) -> None:
        """Place once all stops are recorded, replacements first: the capacity they free may serve later requests."""
        targets = tuple(targets)
        for placer, destructive, _ in targets:
            for request in destructive:
                row = self._view.row(request.previous.node_id) if request.previous is not None else None
                assert row is not None, "the node of a replaced allocation exists"
                self._place(placer, row, request)
        for placer, _, fresh in targets:
            self._place_fresh(placer, fresh)
        for group, count in self._coalesced.items():
            metric = self._draft.failed[group]
            self._draft.failed[group] = replace(metric, coalesced_failures=metric.coalesced_failures + count)

    def _place_fresh(self, placer: GroupPlacer, fresh: Sequence[tuple[int, PlacementRequest]]) -> None:
        """Place the new allocations of a group, up to the one that a limit refuses."""
        group = placer.group.name
        for number, (row, request) in enumerate(fresh):
            if group in self._refused:
                self._refuse_all(group, fresh[number:])
                return
            self._place(placer, row, request)

    def _refuse_all(self, group: str, fresh: Sequence[tuple[int, PlacementRequest]]) -> None:
        """Record the nodes for which a limit refuses a new allocation of the group, as it did for the node before."""
        nodes, limit = [self._view.rows.ids[row] for row, _ in fresh], self._refused[group]
        canaries = sum(request.is_canary for _, request in fresh)
        self._counts[group]["canary"] += canaries
        self._counts[group]["place"] += len(fresh) - canaries
        self._draft.queued[group] += len(fresh)
        self.failed_fresh[group] = self.failed_fresh.get(group, 0) + len(fresh) - canaries
        self._coalesced[group] = self._coalesced.get(group, 0) + len(fresh)
        for node_id in nodes:
            self.failed_nodes.setdefault(node_id, set()).add(group)
        if limit:
            self.limited.update(((node_id, group), limit) for node_id in nodes)

    def _place(self, placer: GroupPlacer, row: int, request: PlacementRequest) -> None:
        counts, draft, view = self._counts[request.group], self._draft, self._view
        counts["canary" if request.is_canary else "destructive_update" if request.stops else "place"] += 1
        replaced = request.previous if request.stops else None
        if replaced is not None:
            view.release(replaced)
        placed = self._placed(placer, row, request, replaced)
        if isinstance(placed, AllocationMetric):
            if replaced is not None:
                draft.replacing.setdefault(request.group, []).append(replaced)
                view.restore(replaced)
            else:
                self._note_fresh(request)
            self._fail(request.group, view.rows.ids[row], placed)
            return
        if self._limits.is_counting:
            self._refused.clear()
            self._limits.take(counted(placed.grant.usage))
            for alloc in (*(() if replaced is None else (replaced,)), *placed.preempted):
                self._limits.give_back(alloc)
        counts["preemptions"] += len(placed.preempted)
        draft.add(request, placed, view.node(row), version=placer.job.version, deployment=draft.deployment)

    def _placed(
        self, placer: GroupPlacer, row: int, request: PlacementRequest, replaced: Allocation | None
    ) -> PlacedAlloc | AllocationMetric:
        """The placement on a node, or the reason why a limit or the node refuses it."""
        if not self._limits.current:
            return placer.place_on(row, request.name)
        refusal = self._limits.refusal(placer.ask.least_amounts, replaced)
        pair = (self._view.rows.ids[row], request.group)
        if refusal is not None:
            name, dimensions = refusal
            if name:
                self.limited[pair] = name
            if replaced is None:
                self._refused[request.group] = name
            return AllocationMetric(nodes_evaluated=1, node_pool=placer.job.node_pool, quota_exhausted=dimensions)
        placer.limits = grants = LimitedGrants(self._limits, replaced)
        placed = placer.place_on(row, request.name)
        if not isinstance(placed, AllocationMetric):
            return placed
        if grants.limit:
            self.limited_grants[pair] = grants.limit
        return replace(placed, quota_exhausted=grants.reached())

    def _note_fresh(self, request: PlacementRequest) -> None:
        if not request.is_canary:
            self.failed_fresh[request.group] = self.failed_fresh.get(request.group, 0) + 1

    def _note_failed(self, group: str, node_id: str) -> None:
        self._draft.queued[group] += 1
        self.failed_nodes.setdefault(node_id, set()).add(group)

    def _fail(self, group: str, node_id: str, metric: AllocationMetric) -> None:
        self._note_failed(group, node_id)
        draft = self._draft
        earlier = draft.failed.get(group)
        draft.failed[group] = metric if earlier is None else _merged(earlier, metric)


def _merged(earlier: AllocationMetric, metric: AllocationMetric) -> AllocationMetric:
    """The metrics of failures on several nodes combined: node counts are added, exhausted dimensions united.

    The number of evaluated nodes is that of the attempt that evaluated most: nodes beyond a limit are not evaluated.
    """
    widest = max(earlier, metric, key=lambda each: each.nodes_evaluated)
    return replace(
        widest,
        coalesced_failures=earlier.coalesced_failures + 1,
        nodes_exhausted=earlier.nodes_exhausted + metric.nodes_exhausted,
        dimension_exhausted=_added(earlier.dimension_exhausted, metric.dimension_exhausted),
        class_exhausted=_added(earlier.class_exhausted, metric.class_exhausted),
        resources_exhausted=_ran_out(earlier.resources_exhausted, metric.resources_exhausted),
        quota_exhausted=earlier.quota_exhausted or metric.quota_exhausted,
    )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _ran_out(one: Mapping[str, Resources], other: Mapping[str, Resources]) -> dict[str, Resources]:
    """Each task's request in the dimensions exhausted on any node; 0 in the others."""
    by_task = dict(one)
    for task, requested in other.items():
        before = by_task.get(task, requested)
        by_task[task] = replace(
            before,
            cpu=max(before.cpu, requested.cpu),
            memory_mb=max(before.memory_mb, requested.memory_mb),
            disk_mb=max(before.disk_mb, requested.disk_mb),
        )
    return dict(sorted(by_task.items()))
