"""Whether the work of a batch allocation that is to be replaced has been done (invariant D4)."""

from __future__ import annotations

from typing import Final

from yurt.state.store import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.predicates import has_completed, has_returned_done
from yurt.structs.queueing.requeue import has_done_its_work
from yurt.structs.rules import RULES_VERSION, STAND_IN_RULES

RUNNING_ONCE: Final = (status.JOB_BATCH, status.JOB_SYSBATCH)
ORIGINALS_MAX: Final = 64
"""The number of predecessors of an allocation that are examined: one may have been out of contact."""


def is_work_done(snapshot: Snapshot, alloc_id: str, job: Job, *, rules_version: int = RULES_VERSION) -> bool:
    """Whether a replacement would repeat finished work of this version of the job.

    The allocation itself has completed, or it stands in for an original that was out of contact and that has completed,
    whatever the reason of the replacement. Rules before `STAND_IN_RULES` looked for an original of failed ones only.

    The scheduler decides the same (`scheduler.reconcile.replacements`, `scheduler.job_types.system_diff`): otherwise
    each evaluation of the job would be followed by another.
    """
    alloc = snapshot.allocs.get(alloc_id)
    if alloc is None or job.type not in RUNNING_ONCE:
        return False
    if alloc.client_status != status.CLIENT_FAILED and rules_version < STAND_IN_RULES:
        return _has_done_all(alloc, job)
    return _has_done_all(alloc, job) or _has_original_done(snapshot, alloc, job)


def is_done_before_rival(snapshot: Snapshot, alloc_id: str, job: Job) -> bool:
    """Whether an allocation to be stopped has completed for this version of a batch job, and a live one has its name.

    The plan was to keep the other one: a reconnected original, or what stands in for it. If this stop is left out, the
    next evaluation stops the other one; otherwise both would run to their end.
    """
    alloc = snapshot.allocs.get(alloc_id)
    if alloc is None or job.type != status.JOB_BATCH or alloc.client_status != status.CLIENT_COMPLETE:
        return False
    if alloc.desired_status != status.DESIRED_RUN or not _is_of(alloc, job):
        return False
    return any(other.name == alloc.name for other in snapshot.allocs.each_where("live", job.key))


def _has_original_done(snapshot: Snapshot, alloc: Allocation, job: Job) -> bool:
    """Whether a predecessor with the allocation's name was out of contact, is back, and has completed."""
    original: Allocation | None = alloc
    for _ in range(ORIGINALS_MAX):
        original = snapshot.allocs.get(original.previous_allocation) if original is not None else None
        if original is None or original.name != alloc.name or not _is_of(original, job):
            return False
        if has_returned_done(original) and original.desired_status == status.DESIRED_RUN:
            return True
    return False


def _has_done_all(alloc: Allocation, job: Job) -> bool:
    """Whether an allocation to replace has completed for this version of a batch job."""
    if alloc.client_status != status.CLIENT_COMPLETE or not _is_of(alloc, job):
        return False
    match alloc.desired_status:
        case status.DESIRED_STOP:
            return has_completed(alloc) and not alloc.desired_transition.reschedule
        case status.DESIRED_EVICT:
            return has_done_its_work(alloc)
        case _:
            return True


def _is_of(alloc: Allocation, job: Job) -> bool:
    own = alloc.job
    return own is not None and (own.create_index, own.version) == (job.create_index, job.version)
