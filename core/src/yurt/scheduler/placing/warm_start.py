"""Warm start: an attempt at a new job continues with the view and rankings of the previous attempt.

Jobs come in batches, and those of one batch often ask for the same: children of a parameterized job, jobs of one
script. Feasible nodes, usage and ranking are nearly the same for each, since a placement changes one node. So the first
job of a kind pays for all.

A new job has no allocations to stop, so its plan only adds usage. After such a plan, and no other, the view of the
attempt equals the state with the plan laid over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.state.store import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import Outcome, Plan
from yurt.structs.status import JOB_BATCH, JOB_SERVICE

PLACERS_MAX: Final = 4
"""The number of groups whose placers are kept for later jobs."""


class WarmStart(msgspec.Struct, frozen=True):
    """The cluster including earlier jobs' plans, and placers of their groups, most recently used first."""

    view: ClusterView
    placers: tuple[GroupPlacer, ...] = ()

    def placer(self, job: Job, group: TaskGroup) -> GroupPlacer | None:
        """The placer of an equal group, prepared for this one."""
        for placer in self.placers:
            if placer.group == group and _looks_where(placer.job) == _looks_where(job):
                placer.restart(job, group)
                return placer
        return None

    def after(self, used: Iterable[GroupPlacer]) -> WarmStart:
        """The warm start for the attempt after one that used these placers."""
        used = [placer for placer in used if placer.can_restart]
        others = (placer for placer in self.placers if placer not in used)
        return WarmStart(self.view, (*used, *others)[:PLACERS_MAX])


def is_new(snapshot: Snapshot, job: Job) -> bool:
    """Whether an attempt at the job only adds placements."""
    return (
        job.type in (JOB_SERVICE, JOB_BATCH)
        and not (job.stop or job.all_at_once)
        and all(group.gang is None for group in job.task_groups)
        and not snapshot.allocs.count_where("job", job.key)
    )


def only_adds(plan: Plan, outcome: Outcome) -> bool:
    """Whether the plan of a new job only adds placements and leaves none unplaced."""
    return not (plan.preemptions or outcome.evaluation.failed_tg_allocs)


def _looks_where(job: Job) -> tuple[object, ...]:
    """The parts of a job outside its groups that affect placement."""
    return (job.datacenters, job.node_pool, job.constraints, job.affinities, job.spreads)
