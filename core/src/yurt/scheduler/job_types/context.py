"""The inputs of an attempt, for all job types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from yurt.scheduler.capacity.limits import Limit, LimitsOf, limits_now, no_guarantees, no_limits, region_of
from yurt.scheduler.ids import SeededIds
from yurt.sdk.value import UnixNano
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.queueing.requeue import waited_for
from yurt.structs.status import EVAL_BLOCKED, EVAL_PENDING

if TYPE_CHECKING:
    from yurt.scheduler.capacity.guarantees import Guarantees


class AttemptContext(msgspec.Struct, frozen=True):
    """The state, the evaluation and its job, the time, and the seeds of ids and tie-breaks."""

    snapshot: Snapshot
    evaluation: Evaluation
    job: Job | None
    """The job; None if it was purged."""
    allocs: tuple[Allocation, ...]
    """All stored allocations of the job."""
    now: UnixNano
    ids: SeededIds
    seed: int
    limits: Callable[[], Sequence[Limit]]
    """Computes the limits of the job before the plan."""
    guarantees: Callable[[], Guarantees | None] = no_guarantees
    """Computes the guarantees of namespaces, and their usage before the plan."""

    @property
    def nodes_of_allocs(self) -> dict[str, Node | None]:
        """The nodes of the job's allocations; None for a deleted one."""
        return {alloc.node_id: self.snapshot.nodes.get(alloc.node_id) for alloc in self.allocs}

    @property
    def waiting_evals(self) -> frozenset[str]:
        """Evaluations that wait of those for which idle allocations of the job ended."""
        named = {waited_for(alloc) for alloc in self.allocs} - {""}
        evals = (self.snapshot.evals.get(eval_id) for eval_id in named)
        return frozenset(each.id for each in evals if each is not None and each.status in (EVAL_BLOCKED, EVAL_PENDING))

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        evaluation: Evaluation,
        *,
        now: UnixNano,
        ids: SeededIds,
        seed: int,
        limits: LimitsOf = no_limits,
    ) -> AttemptContext:
        """The context for an evaluation on a state."""
        job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
        allocs = snapshot.allocs_of_job(evaluation.namespace, evaluation.job_id)
        own_limits = tuple if job is None else partial(limits_now, limits, snapshot, job)
        guarantees = partial(_guarantees, snapshot, region_of(limits), job, now)
        return cls(snapshot, evaluation, job, allocs, now, ids, seed, own_limits, guarantees)


def _guarantees(snapshot: Snapshot, region: str, job: Job | None, now: int) -> Guarantees | None:
    """The guarantees for an attempt at a job; the module is imported only if there are quotas."""
    if not region or not len(snapshot.quotas):
        return None
    from yurt.scheduler.capacity.guarantees import guarantees_for

    return guarantees_for(snapshot, region, job, now)
