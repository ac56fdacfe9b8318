"""The placers of an attempt's groups, and their shared view of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.placing.warm_start import WarmStart
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_terminal


class GroupPlacers:
    """One placer per group, created for the group's first request."""

    def __init__(self, context: AttemptContext, warm_start: WarmStart | None = None) -> None:
        """`warm_start` is the state after attempts at other jobs; only a job that `is_new` may continue from it."""
        assert warm_start is None or not context.allocs, "the view of the attempt before lacks the stops of this job"
        self._context = context
        self._warm_start = warm_start or WarmStart(ClusterView(context.snapshot))
        self.view = self._warm_start.view
        self.view.now = context.now
        """The cluster with the placements so far."""
        self._first_generation = self.view.generation
        self.by_group: dict[str, GroupPlacer] = {}

    def restart(self, names: Collection[str]) -> None:
        """Start again without placements, but retain the placers of these groups with the refusals of nodes."""
        if self.view.generation != self._first_generation:
            assert not self._first_generation, "what others have placed would be lost"
            self._warm_start = WarmStart(ClusterView(self._context.snapshot, self._context.now))
            self.view = self._warm_start.view
        self.by_group = {name: placer for name, placer in self.by_group.items() if name in names}

    def of(self, job: Job, name: str, draft: PlanDraft) -> GroupPlacer:
        """The placer of a group of the job's newest version."""
        placer = self.by_group.get(name)
        if placer is None:
            group = job.group(name)
            assert group is not None
            placer = self.by_group[name] = self._warm_start.placer(job, group) or self._new(job, group, draft)
        return placer

    def of_older(self, job: Job, name: str, draft: PlanDraft) -> GroupPlacer:
        """A placer for a single placement of an older version, with the present view."""
        group = job.group(name)
        assert group is not None
        return self._new(job, group, draft)

    def others(self, name: str) -> Iterator[GroupPlacer]:
        """The placers of the other groups, which must count each placement of this one."""
        return (placer for other, placer in self.by_group.items() if other != name)

    def names_of(self, rows: Sequence[int]) -> Mapping[int, str]:
        """The names of these rows' nodes, possibly of more: one cached mapping serves all attempts."""
        cached: dict[int, str] = self.view.rows.names
        unknown = list(set(rows).difference(cached))
        if unknown:
            ids = self.view.rows.ids
            nodes = self._context.snapshot.nodes.rows([ids[row] for row in unknown])
            cached.update((row, node.name) for row, node in zip(unknown, nodes, strict=True))
        return cached

    def warm_start_after(self) -> WarmStart:
        """The warm start for an attempt at the next new job."""
        return self._warm_start.after(self.by_group.values())

    def _new(self, job: Job, group: TaskGroup, draft: PlanDraft) -> GroupPlacer:
        """A placer that counts running allocations and the placements so far."""
        own = list(self._running(draft)) if self._context.allocs else ()
        placer = GroupPlacer(self.view, job, group, seed=self._context.seed, own=own)
        if placer.distinct.is_used and draft.placements:
            for placement in draft.placements:
                row = self.view.row(placement.node_id)
                if row is not None:
                    placer.distinct.count((row,), placement.task_group)
            placer.recount()
        return placer

    def _running(self, draft: PlanDraft) -> Iterator[Allocation]:
        """The job's allocations that the plan leaves running."""
        stopped = draft.stopped_ids()
        for alloc in self._context.allocs:
            if not is_terminal(alloc) and alloc.id not in stopped:
                yield alloc
