"""Evaluations triggered by clients' reports: failed, reconnected and completed allocations."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.fsm.eval_triggers import Mint, evaluation_of
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AllocUpdate
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.queueing.requeue import requeue_policy
from yurt.structs.status import NotGiven, Trigger


def evals_for_updates(
    state: Snapshot, updates: Iterable[AllocUpdate], mint: Mint, *, replaces_ended: bool = True
) -> tuple[Evaluation, ...]:
    """At most one evaluation per job and trigger, in the order of the updates.

    `replaces_ended`: also for services whose allocations end unasked (from `ENDED_SERVICE_RULES` on).
    """
    sources: dict[tuple[str, str, Trigger], Job] = {}
    for update in updates:
        alloc = state.allocs.get(update.id)
        if alloc is None:
            continue
        job = state.jobs.get((alloc.namespace, alloc.job_id))
        trigger = trigger_of(alloc, update, job, mint.now)
        if not trigger and replaces_ended and _ends_unasked(alloc, update, job):
            trigger = status.TRIGGER_ALLOC_STOP
        source = job or alloc.job
        if trigger and source is not None:
            sources[(alloc.namespace, alloc.job_id, trigger)] = source
    return tuple(evaluation_of(job, trigger, mint) for (_, _, trigger), job in sources.items())


def trigger_of(alloc: Allocation, update: AllocUpdate, job: Job | None, now: UnixNano) -> Trigger | NotGiven:
    """The trigger of an evaluation that the allocation's report requires, or ''."""
    if job is None:
        should_run = alloc.desired_status == status.DESIRED_RUN and update.client_status not in status.CLIENT_TERMINAL
        return status.TRIGGER_JOB_DEREGISTER if should_run else ""
    if alloc.client_status == status.CLIENT_UNKNOWN and update.client_status != status.CLIENT_UNKNOWN:
        return status.TRIGGER_RECONNECT
    if (
        requeue_policy(alloc) is not None
        and update.client_status in status.CLIENT_TERMINAL
        and alloc.client_status not in status.CLIENT_TERMINAL
    ):
        return status.TRIGGER_PREEMPTION
    if (
        update.client_status == status.CLIENT_FAILED
        and alloc.client_status != status.CLIENT_FAILED
        and not alloc.followup_eval_id
        and is_reschedulable(alloc, now)
    ):
        return status.TRIGGER_RETRY_FAILED_ALLOC
    return ""


def _ends_unasked(alloc: Allocation, update: AllocUpdate, job: Job | None) -> bool:
    """Whether an allocation of a service has ended that should run.

    A service ends only when it is asked to; an end that no server knows of was asked for by a state that a restored
    snapshot has replaced, or by an agent that ends its tasks because it leaves.
    """
    return (
        job is not None
        and job.type == status.JOB_SERVICE
        and update.client_status == status.CLIENT_COMPLETE
        and alloc.client_status not in status.CLIENT_TERMINAL
        and alloc.desired_status == status.DESIRED_RUN
    )


def is_reschedulable(alloc: Allocation, failed_at: UnixNano) -> bool:
    """Whether the group's policy permits rescheduling an allocation that failed at `failed_at`."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    policy = group.reschedule_policy if group is not None else None
    if policy is None:
        return False
    if policy.unlimited:
        return True
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker is not None else ()
    recent = sum(1 for event in events if failed_at - event.reschedule_time < policy.interval)
    return recent < policy.attempts
