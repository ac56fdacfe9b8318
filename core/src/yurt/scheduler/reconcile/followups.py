"""Follow-up evaluations for later work, batched in windows of five seconds."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.ids import SeededIds
from yurt.scheduler.reconcile.reschedule_policy import BATCH_WINDOW
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.predicates import eval_type
from yurt.structs.status import (
    EVAL_PENDING,
    TRIGGER_MAX_DISCONNECT,
    TRIGGER_PREEMPTION,
    TRIGGER_RETRY_FAILED_ALLOC,
    Trigger,
)

DELAYED_RESCHEDULE = "created for delayed rescheduling"
DELAYED_DISCONNECT = "created for delayed disconnect timeout"
DELAYED_REQUEUE = "created for delayed requeue after preemption"
_DESCRIPTIONS = {
    TRIGGER_RETRY_FAILED_ALLOC: DELAYED_RESCHEDULE,
    TRIGGER_MAX_DISCONNECT: DELAYED_DISCONNECT,
    TRIGGER_PREEMPTION: DELAYED_REQUEUE,
}


def followups(
    job: Job, due: Iterable[tuple[Allocation, int]], trigger: Trigger, *, ids: SeededIds, parent: Evaluation, now: int
) -> tuple[list[Evaluation], dict[str, str]]:
    """One evaluation for each window of due times, and for each allocation the id of its evaluation.

    It is due at the first time of its window; one for the time limits of unknown allocations is due at the last,
    for nothing is given up early.
    """
    made: list[Evaluation] = []
    eval_of: dict[str, str] = {}
    window_start = 0
    for alloc, at in sorted(due, key=lambda pair: (pair[1], pair[0].id)):
        # From the first of a window, not from the last: a chain of close times would put the first off without end.
        if made and at - window_start <= BATCH_WINDOW:
            if trigger == TRIGGER_MAX_DISCONNECT:
                made[-1] = replace(made[-1], wait_until=at)
        else:
            window_start = at
            made.append(
                Evaluation(
                    id=ids.next("eval"),
                    namespace=job.namespace,
                    priority=parent.priority,
                    type=eval_type(job),
                    triggered_by=trigger,
                    job_id=job.id,
                    job_modify_index=job.modify_index,
                    previous_eval=parent.id,
                    status=EVAL_PENDING,
                    status_description=_DESCRIPTIONS[trigger],
                    wait_until=at,
                    create_time=now,  # type: ignore[arg-type]
                    modify_time=now,  # type: ignore[arg-type]
                )
            )
        eval_of[alloc.id] = made[-1].id
    assert len(made) <= len(eval_of), (len(made), len(eval_of), "each evaluation comes for an allocation")
    return made, eval_of
