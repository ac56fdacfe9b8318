"""Reschedule policy: decides whether and when a failed allocation is rescheduled (docs/explanation/reconciling.md)."""

from __future__ import annotations

import msgspec

from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace
from yurt.structs.alloc import Allocation, RescheduleEvent, RescheduleTracker
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import ReschedulePolicy
from yurt.structs.status import CLIENT_FAILED, SERVER_TERMINAL

SOON = NANOSECONDS
"""An allocation due within this time (nanoseconds) is rescheduled at once."""
BATCH_WINDOW = 5 * NANOSECONDS
"""Delayed times within this distance (nanoseconds) share one follow-up evaluation."""
EVENTS_MAX = 5
NO_PLACEMENT = "no placement"
PLACED = "ok"


class Due(msgspec.Struct, frozen=True):
    """The time from which an allocation may be rescheduled."""

    at: int
    is_eligible: bool


def group_of(alloc: Allocation, job: Job | None = None) -> TaskGroup | None:
    """The allocation's group as it was placed, or as in the job now."""
    own = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return own or (job.group(alloc.task_group) if job is not None else None)


def policy_of(alloc: Allocation) -> ReschedulePolicy | None:
    """The reschedule policy under which the allocation was placed."""
    group = group_of(alloc)
    return group.reschedule_policy if group is not None else None


def failed_at(alloc: Allocation) -> int:
    """The end of its last task, by its client's clock, bounded by the times of the servers."""
    reported = max((state.finished_at for state in alloc.task_states.values()), default=0)
    # A client's clock may be ahead: a failure in the future would put the replacement off for as long.
    latest = alloc.modify_time or reported
    return max(min(reported or latest, latest), alloc.create_time)


def due(alloc: Allocation) -> Due:
    """The time from which a failed allocation may be rescheduled; ineligible if it has not failed or has no attempts
    left."""
    policy = policy_of(alloc)
    if policy is None or alloc.client_status != CLIENT_FAILED or alloc.desired_status in SERVER_TERMINAL:
        return Due(0, is_eligible=False)
    if not policy.unlimited and (policy.attempts <= 0 or policy.interval <= 0):
        return Due(0, is_eligible=False)
    at = failed_at(alloc)
    delay = next_delay(alloc, policy)
    if policy.unlimited:
        return Due(at + delay, is_eligible=True)
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker is not None else ()
    counted = sum(1 for event in events if at - event.reschedule_time < policy.interval)
    is_in_time = not events or delay < policy.interval
    return Due(at + delay, is_eligible=counted < policy.attempts and is_in_time)


def next_delay(alloc: Allocation, policy: ReschedulePolicy) -> Duration:
    """The delay between the failure and the replacement."""
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker is not None else ()
    if not events:
        return policy.delay
    last = events[-1]
    match policy.delay_function:
        case "exponential":
            delay = last.delay * 2
        case "fibonacci":
            delay = _fibonacci(events, policy)
        case _:
            return policy.delay
    if policy.max_delay > 0 and delay > policy.max_delay:
        is_reset = failed_at(alloc) - last.reschedule_time > policy.max_delay
        return policy.delay if is_reset else policy.max_delay
    return Duration(delay)


def _fibonacci(events: tuple[RescheduleEvent, ...], policy: ReschedulePolicy) -> int:
    if len(events) < 2:
        return events[-1].delay
    before, last = events[-2].delay, events[-1].delay
    if before == policy.max_delay and last == policy.delay:
        return last
    return before + last


def tracker_after(alloc: Allocation, now: UnixNano) -> RescheduleTracker:
    """The reschedule history of an allocation's replacement."""
    policy = policy_of(alloc)
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker is not None else ()
    if policy is not None and policy.unlimited:
        retained = events[-EVENTS_MAX:]
    else:
        interval = policy.interval if policy is not None else 0
        retained = tuple(event for event in events if now - event.reschedule_time < interval)
    delay = next_delay(alloc, policy) if policy is not None else Duration(0)
    event = RescheduleEvent(reschedule_time=now, prev_alloc_id=alloc.id, prev_node_id=alloc.node_id, delay=delay)
    assert policy is None or not policy.unlimited or len(retained) <= EVENTS_MAX, "an unlimited history stays short"
    tracker = alloc.reschedule_tracker or RescheduleTracker()
    return replace(tracker, events=(*retained, event), last_reschedule=PLACED)


def unplaced(alloc: Allocation) -> RescheduleTracker:
    """The reschedule history of an allocation whose replacement was unplaced."""
    return replace(alloc.reschedule_tracker or RescheduleTracker(), last_reschedule=NO_PLACEMENT)
