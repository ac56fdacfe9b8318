"""Reschedule policies: delays, limits and the history that a replacement carries."""

from __future__ import annotations

import pytest
from yurt.scheduler.reconcile.reschedule_policy import due, next_delay, tracker_after
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.alloc import Allocation, RescheduleEvent, RescheduleTracker, TaskState
from yurt.structs.policies import ReschedulePolicy
from yurt.testing import factories

NOW = factories.NOW


def _policy(**changes: object) -> ReschedulePolicy:
    made = ReschedulePolicy(delay=seconds(30), delay_function="constant", max_delay=seconds(3600), unlimited=True)
    return replace(made, **changes)


def _failed(policy: ReschedulePolicy, delays: list[int], gap_s: int = 1) -> Allocation:
    job = factories.job(task_groups=(factories.group(reschedule_policy=policy),))
    events = tuple(
        RescheduleEvent(reschedule_time=UnixNano(NOW - seconds(gap_s * (len(delays) - i))), delay=seconds(delay))
        for i, delay in enumerate(delays)
    )
    made = factories.alloc(job, client_status="failed")
    return replace(
        made,
        task_states={"web": TaskState(state="dead", failed=True, finished_at=NOW)},
        reschedule_tracker=RescheduleTracker(events=events) if events else None,
    )


@pytest.mark.parametrize(
    ("function", "delays", "expected"),
    [
        ("constant", [30, 30], 30),
        ("exponential", [], 30),
        ("exponential", [30], 60),
        ("exponential", [30, 60], 120),
        ("exponential", [2400], 3600),
        ("fibonacci", [30], 30),
        ("fibonacci", [30, 30], 60),
        ("fibonacci", [30, 60], 90),
        ("fibonacci", [3600, 30], 30),
    ],
)
def test_the_next_delay_follows_the_function(function: str, delays: list[int], expected: int) -> None:
    policy = _policy(delay_function=function)
    assert next_delay(_failed(policy, delays), policy) == seconds(expected)


def test_a_capped_delay_starts_over_after_a_calm_time() -> None:
    policy = _policy(delay_function="exponential", max_delay=seconds(100))
    assert next_delay(_failed(policy, [80], gap_s=101), policy) == seconds(30)
    assert next_delay(_failed(policy, [80], gap_s=99), policy) == seconds(100)


def test_a_limited_policy_counts_the_attempts_of_its_interval() -> None:
    policy = _policy(unlimited=False, attempts=2, interval=seconds(600))
    assert due(_failed(policy, [30])).is_eligible
    assert not due(_failed(policy, [30, 30])).is_eligible
    assert due(_failed(policy, [30, 30], gap_s=601)).is_eligible


def test_without_a_policy_a_failed_allocation_stays() -> None:
    policy = _policy(unlimited=False)
    assert not due(_failed(policy, [])).is_eligible


def test_the_history_keeps_five_events_and_adds_the_new_one() -> None:
    policy = _policy()
    tracker = tracker_after(_failed(policy, [30] * 8), UnixNano(NOW))
    assert len(tracker.events) == 6
    assert tracker.events[-1].delay == seconds(30)


def test_the_time_is_counted_from_the_failure() -> None:
    assert due(_failed(_policy(), [])).at == NOW + seconds(30)
