"""Preempted allocations of groups with a `requeue` block: whether and when they are placed again, and their lost work.

Such an allocation is not replaced before its client has reported its end: until then it may save its work, and its disk
cannot be taken over. Then it waits out its back-off, and in the queue of its node pool like a job that has just come,
with the place that it had: a job's age counts from its submission.
"""

from __future__ import annotations

from typing import Final

from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation, RescheduleTracker
from yurt.structs.evaluation import Evaluation
from yurt.structs.policies import Requeue
from yurt.structs.predicates import is_client_terminal
from yurt.structs.queueing.idle import STOP
from yurt.structs.status import CLIENT_COMPLETE, DESIRED_EVICT, JOB_BATCH

EXPONENT_MAX: Final = 40
"""The maximum number of doublings of a delay; any delay is at its maximum by then."""


IDLE_DELAY: Final = seconds(10)
IDLE_BEHIND: Final = seconds(300)
"""How long an allocation that ended for being idle lets the evaluation go first for which it ended."""
IDLE_DELAY_MAX: Final = seconds(3600)
_FINAL: Final = Requeue(attempts=0)
"""The policy for an allocation that is never requeued."""

PREEMPTING: Final = "Preempting"
"""The type of the task event for an end by preemption."""


def has_done_its_work(alloc: Allocation) -> bool:
    """Whether a preempted allocation completed before its client learned of the preemption.

    The exit status of a task that was stopped says nothing about its work.
    """
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    if alloc.client_status != CLIENT_COMPLETE or group is None:
        return False
    mains = [alloc.task_states.get(task.name) for task in group.tasks if task.lifecycle is None]
    return bool(mains) and all(
        state is not None and all(event.type != PREEMPTING for event in state.events) for state in mains
    )


def requeue_policy(alloc: Allocation) -> Requeue | None:
    """The requeue policy of a preempted allocation; None when it was not preempted or has no policy."""
    job = alloc.job
    if alloc.desired_status != DESIRED_EVICT or job is None or job.type != JOB_BATCH:
        return None
    if alloc.idle is not None and alloc.idle.action == STOP:
        return _FINAL
    group = job.group(alloc.task_group)
    policy = group.requeue if group is not None else None
    if alloc.idle is not None and alloc.idle.action:
        return after_idleness(policy or Requeue())
    return policy


def after_idleness(policy: Requeue) -> Requeue:
    """The requeue policy for an allocation that ended because it was idle: a delay lets the waiting job take the
    devices.

    Otherwise its priority, or its older place in the queue, would give them back to it at once.
    """
    delay = max(policy.delay, IDLE_DELAY)
    longest = max(policy.max_delay, delay) if policy.max_delay > 0 else IDLE_DELAY_MAX
    return replace(policy, delay=delay, max_delay=longest)


def waited_for(alloc: Allocation) -> str:
    """The evaluation for which an allocation ended because it was idle; "" for none."""
    return alloc.idle.waiting_eval if alloc.idle is not None and alloc.idle.action else ""


def behind_until(alloc: Allocation) -> int:
    """The time until which an ended allocation lets that evaluation go first, while it waits."""
    return ended_at(alloc) + IDLE_BEHIND


def requeues_of(alloc: Allocation) -> int:
    """The number of times that the allocation's predecessors were preempted and requeued."""
    return alloc.reschedule_tracker.requeues if alloc.reschedule_tracker is not None else 0


def has_attempts(alloc: Allocation, policy: Requeue) -> bool:
    """Whether the allocation may be requeued once more."""
    return policy.attempts < 0 or requeues_of(alloc) < policy.attempts


def due_at(alloc: Allocation, policy: Requeue) -> int:
    """The time from which an ended allocation may be placed again."""
    return ended_at(alloc) + back_off(policy, requeues_of(alloc))


def back_off(policy: Requeue, requeues: int) -> Duration:
    """The delay after `requeues` earlier requeues."""
    if policy.delay <= 0:
        return Duration(0)
    match policy.delay_function:
        case "exponential":
            delay = policy.delay << min(requeues, EXPONENT_MAX)
        case "fibonacci":
            delay = policy.delay * _fibonacci(min(requeues, EXPONENT_MAX))
        case _:
            delay = policy.delay
    return Duration(min(delay, policy.max_delay) if policy.max_delay > 0 else delay)


def _fibonacci(number: int) -> int:
    before, last = 1, 1
    for _ in range(number):
        before, last = last, before + last
    return before


def ended_at(alloc: Allocation) -> int:
    """The end of its last task by its client's clock, bounded by times of the servers' clock."""
    reported = max((state.finished_at for state in alloc.task_states.values()), default=0)
    latest = alloc.modify_time or reported
    return max(min(reported or latest, latest), alloc.create_time)


def lost_work(alloc: Allocation, until: int) -> Duration:
    """The run time lost by ending an allocation, in nanoseconds: since its last checkpoint, or since its tasks
    started."""
    starts = [state.started_at for state in alloc.task_states.values() if state.started_at]
    if not starts:
        return Duration(0)
    saved = max((state.checkpointed_at for state in alloc.task_states.values()), default=0)
    # The client's clock may be ahead: the bounds exclude a checkpoint in the future and lost time counted twice.
    return Duration(max(0, until - max(saved, min(starts))))


def requeued_tracker(alloc: Allocation, now: int) -> RescheduleTracker:
    """The reschedule history of a preempted allocation's replacement."""
    tracker = alloc.reschedule_tracker or RescheduleTracker()
    end = ended_at(alloc) if is_client_terminal(alloc) else now
    lost = Duration(tracker.lost + lost_work(alloc, end))
    assert lost >= tracker.lost, "the lost run time never decreases"
    return replace(tracker, requeues=tracker.requeues + 1, lost=lost)


def is_replacement_deferred(alloc: Allocation, evaluation: Evaluation) -> bool:
    """Whether a preempted allocation is not to be replaced in this evaluation: too early, or never.

    It still ends, it has done its work or has no attempts left, or its back-off has not begun: the evaluation that
    begins one, and not the one that comes when it is over, is for the scheduler at once.
    """
    policy = requeue_policy(alloc)
    if policy is None or alloc.next_allocation:
        return False
    if not is_client_terminal(alloc) or not has_attempts(alloc, policy) or has_done_its_work(alloc):
        return True
    is_delayed = back_off(policy, requeues_of(alloc)) > 0
    return is_delayed and not alloc.followup_eval_id and evaluation.wait_until <= 0
