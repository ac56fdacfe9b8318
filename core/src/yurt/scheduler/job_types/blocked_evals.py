"""Blocked evaluations, which wait for capacity or after too many plan conflicts (docs/explanation/scheduling.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types.context import AttemptContext
from yurt.sdk.value import UnixNano, replace
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.plan import Outcome
from yurt.structs.status import (
    EVAL_BLOCKED,
    EVAL_FAILED,
    EVAL_PENDING,
    JOB_BATCH,
    JOB_SERVICE,
    JOB_SYSBATCH,
    JOB_SYSTEM,
    TRIGGER_MAX_PLANS,
    TRIGGER_QUEUED_ALLOCS,
)

PLACEMENT_CONFLICTS = "created due to placement conflicts"
RECLAIM = "created to reclaim guaranteed capacity when the protection of its borrowers ends"
REMAINING = "created to place remaining allocations"
ATTEMPTS = {JOB_SERVICE: 5, JOB_BATCH: 2, JOB_SYSTEM: 5, JOB_SYSBATCH: 2}


def max_attempts(job_type: str) -> int:
    """The maximum number of attempts without progress for a job type."""
    return ATTEMPTS.get(job_type, 2)


class CapacityWait(msgspec.Struct, frozen=True):
    """The reasons of a wait: unplaced groups, and the node classes or the node that may free capacity."""

    failed: Mapping[str, AllocationMetric] = MappingProxyType({})
    classes: Mapping[str, bool] = MappingProxyType({})
    is_escaped: bool = False
    node_id: str = ""
    limit: str = ""
    missing: tuple[str, ...] = ()


def blocked_eval(
    parent: Evaluation, wait: CapacityWait, *, id: str, now: UnixNano, snapshot_index: int, job: Job | None = None
) -> Evaluation:
    """An evaluation that waits for capacity."""
    return Evaluation(
        id=id,
        namespace=parent.namespace,
        priority=parent.priority,
        type=parent.type,
        triggered_by=TRIGGER_QUEUED_ALLOCS,
        job_id=parent.job_id,
        job_modify_index=job.modify_index if job is not None else parent.job_modify_index,
        node_id=wait.node_id,
        status=EVAL_BLOCKED,
        status_description=REMAINING,
        previous_eval=parent.id,
        class_eligibility=dict(wait.classes),
        escaped_computed_class=wait.is_escaped,
        quota_limit_reached=wait.limit,
        missing_non_node_resources=wait.missing,
        failed_tg_allocs=dict(wait.failed),
        snapshot_index=snapshot_index,
        create_time=now,
        modify_time=now,
    )


def reclaim_later(context: AttemptContext, due: int) -> tuple[Evaluation, ...]:
    """The evaluation for the time when borrowers' protection ends; None if the job has one by then."""
    evaluation, key = context.evaluation, (context.evaluation.namespace, context.evaluation.job_id)
    others = (each for each in context.snapshot.evals.where("live", key) if each.id != evaluation.id)
    if any(context.now < each.wait_until <= due and each.status == EVAL_PENDING for each in others):
        return ()
    return (
        Evaluation(
            id=context.ids.next("reclaim"),
            namespace=evaluation.namespace,
            priority=evaluation.priority,
            type=evaluation.type,
            triggered_by=TRIGGER_QUEUED_ALLOCS,
            job_id=evaluation.job_id,
            job_modify_index=context.job.modify_index if context.job is not None else evaluation.job_modify_index,
            previous_eval=evaluation.id,
            status=EVAL_PENDING,
            status_description=RECLAIM,
            wait_until=UnixNano(due),
            snapshot_index=context.snapshot.index,
            create_time=context.now,
            modify_time=context.now,
        ),
    )


def exhausted(
    evaluation: Evaluation,
    *,
    seed: int,
    now: UnixNano,
    snapshot_index: int,
    last: Outcome | None = None,
) -> Outcome:
    """The end of an evaluation after too many refused plans: failed, with a blocked evaluation that tries again.

    `last` is the outcome of the last attempt; what it queued and could not place is kept. The other evaluation of a
    system or sysbatch job waits in the place of this one, at its node, and for the limit that the last attempt met.
    """
    seen = last.evaluation if last is not None else evaluation
    attempts = max_attempts(evaluation.type)
    failed = replace(
        seen,
        status=EVAL_FAILED,
        status_description=f"maximum attempts reached ({attempts})",
        snapshot_index=snapshot_index,
        modify_time=now,
        blocked_eval="",
    )
    wait = CapacityWait(is_escaped=True)
    if evaluation.type in (JOB_SYSTEM, JOB_SYSBATCH):
        wait = replace(wait, node_id=evaluation.node_id, limit=seen.quota_limit_reached, failed=seen.failed_tg_allocs)
    waiting = replace(
        blocked_eval(
            evaluation,
            wait,
            id=SeededIds(seed, "exhausted").next("eval"),
            now=now,
            snapshot_index=snapshot_index,
        ),
        triggered_by=TRIGGER_MAX_PLANS,
        status_description=PLACEMENT_CONFLICTS,
    )
    return Outcome(evaluation=replace(failed, blocked_eval=waiting.id), created=(waiting,))
