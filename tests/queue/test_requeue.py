"""Preempted allocations: back-off, lost work, and when a job wants its place again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.alloc import Allocation, RescheduleTracker, TaskEvent, TaskState
from yurt.structs.evaluation import Evaluation
from yurt.structs.policies import Requeue
from yurt.structs.queueing.requeue import (
    PREEMPTING,
    back_off,
    has_attempts,
    has_done_its_work,
    is_replacement_deferred,
    lost_work,
    requeue_policy,
    requeued_tracker,
)
from yurt.testing import factories

TIMES = st.integers(0, 10**19)
POLICIES = st.builds(
    Requeue,
    attempts=st.integers(-1, 5),
    delay=st.integers(0, 10**12),
    delay_function=st.sampled_from(["constant", "exponential", "fibonacci"]),
    max_delay=st.integers(0, 10**13),
)
ASKED = Evaluation(id="e", triggered_by="job-register")


def preempted(policy: Requeue | None = None, **changes: Any) -> Allocation:
    """A preempted allocation that was told so and has ended."""
    job = factories.job(type="batch", task_groups=(factories.group(update=None, requeue=policy or Requeue()),))
    event = TaskEvent(type=PREEMPTING)
    state = TaskState(state="dead", started_at=UnixNano(10**9), finished_at=UnixNano(5 * 10**9), events=(event,))
    made = Allocation(id="a", job=job, job_id=job.id, task_group=job.task_groups[0].name, task_states={"web": state})
    return replace(made, desired_status="evict", client_status="complete", modify_time=UnixNano(6 * 10**9), **changes)


@given(POLICIES, st.integers(0, 10**6))
def test_a_back_off_grows_up_to_its_maximum(policy: Requeue, requeues: int) -> None:
    first, later = back_off(policy, requeues), back_off(policy, requeues + 1)
    assert 0 <= first <= later
    assert policy.max_delay == 0 or later <= policy.max_delay or policy.delay == 0
    assert back_off(policy, 0) == (min(policy.delay, policy.max_delay) if policy.max_delay else policy.delay)


@given(st.lists(st.tuples(TIMES, TIMES), max_size=4), TIMES, TIMES)
def test_lost_work_is_what_ran_since_the_last_checkpoint(tasks: list[tuple[int, int]], one: int, other: int) -> None:
    states = {str(at): TaskState(started_at=start, checkpointed_at=saved) for at, (start, saved) in enumerate(tasks)}
    alloc, (early, late) = replace(preempted(), task_states=states), sorted((one, other))
    assert 0 <= lost_work(alloc, early) <= lost_work(alloc, late) <= late
    started = [start for start, _ in tasks if start]
    if not started:
        assert lost_work(alloc, late) == 0
    elif max(saved for _, saved in tasks) >= late:
        assert lost_work(alloc, late) == 0, "a clock that is ahead loses nothing"


@given(st.integers(0, 9), st.integers(0, 10**15), TIMES)
def test_requeues_and_lost_time_only_grow(requeues: int, lost: int, now: int) -> None:
    before = RescheduleTracker(requeues=requeues, lost=lost, last_reschedule="ok")
    after = requeued_tracker(preempted(reschedule_tracker=before), now)
    assert (after.requeues, after.events, after.last_reschedule) == (requeues + 1, (), "ok")
    assert after.lost == lost + 4 * 10**9


def test_only_preempted_allocations_of_batch_groups_with_the_block_wait_again() -> None:
    alloc = preempted()
    assert requeue_policy(alloc) == Requeue()
    assert requeue_policy(replace(alloc, desired_status="stop")) is None
    assert alloc.job is not None
    assert requeue_policy(replace(alloc, job=replace(alloc.job, type="service"))) is None
    plain = replace(alloc.job, task_groups=(replace(alloc.job.task_groups[0], requeue=None),))
    assert requeue_policy(replace(alloc, job=plain)) is None


def test_attempts_bound_the_requeues_and_a_negative_number_does_not() -> None:
    twice = preempted(reschedule_tracker=RescheduleTracker(requeues=2))
    assert has_attempts(twice, Requeue(attempts=3)) and has_attempts(twice, Requeue(attempts=-1))
    assert not has_attempts(twice, Requeue(attempts=2)) and not has_attempts(preempted(), Requeue(attempts=0))


def test_whatever_a_task_that_was_told_to_end_exits_with_says_nothing_of_its_work() -> None:
    told = preempted()
    assert not has_done_its_work(told)
    by_itself = {"web": replace(told.task_states["web"], events=())}
    assert has_done_its_work(replace(told, task_states=by_itself))
    assert not has_done_its_work(replace(told, task_states=by_itself, client_status="failed"))


def test_it_is_held_until_it_has_ended_and_its_back_off_is_over() -> None:
    alloc = preempted()
    assert not is_replacement_deferred(alloc, ASKED)
    assert is_replacement_deferred(replace(alloc, client_status="running"), ASKED)
    assert is_replacement_deferred(preempted(Requeue(attempts=0)), ASKED)
    assert not is_replacement_deferred(replace(alloc, next_allocation="b", client_status="running"), ASKED)
    slow = preempted(Requeue(delay=seconds(30)))
    assert is_replacement_deferred(slow, ASKED), "its back-off has not begun"
    assert not is_replacement_deferred(slow, replace(ASKED, wait_until=UnixNano(40 * 10**9)))
    assert not is_replacement_deferred(replace(slow, followup_eval_id="later"), ASKED)
