"""The restart tracker keeps to the policy whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.lifecycle.restarts import (
    REASON_DELAY,
    REASON_NO_RESTARTS,
    REASON_UNRECOVERABLE,
    NoRestart,
    Restart,
    RestartOutcome,
    RestartWindow,
    decide,
)
from yurt.sdk.value import UnixNano, seconds
from yurt.structs.policies import RestartPolicy

FAILED = RestartOutcome()
POLICY = RestartPolicy(attempts=2, interval=seconds(1800), delay=seconds(15), mode="fail")
T0 = UnixNano(1_700_000_000_000_000_000)


def after(window: RestartWindow, at_s: float, *, policy: RestartPolicy = POLICY, outcome: RestartOutcome = FAILED):
    return decide(window, policy, outcome=outcome, on_success=True, now=UnixNano(T0 + seconds(at_s)), chance=0.0)


def test_a_task_restarts_as_often_as_the_policy_allows_and_then_fails():
    first = after(RestartWindow(), 0)
    second = after(first.window, 20)
    third = after(second.window, 40)

    assert isinstance(first, Restart) and isinstance(second, Restart)
    assert third == NoRestart(third.window, True, 'Exceeded allowed attempts 2 in interval 30m0s and mode is "fail"')


def test_the_count_starts_anew_only_after_the_window():
    full = RestartWindow(start=T0, count=2)

    assert isinstance(after(full, 1800), NoRestart)
    anew = after(full, 1800.001)
    assert isinstance(anew, Restart) and anew.window.count == 1


def test_a_clock_that_was_set_back_begins_a_window():
    anew = after(RestartWindow(start=T0, count=2), -3600)

    assert isinstance(anew, Restart)
    assert (anew.window.start, anew.window.count) == (T0 - seconds(3600), 1)


def test_mode_delay_waits_exactly_for_the_end_of_the_window():
    policy = RestartPolicy(attempts=1, interval=seconds(60), delay=seconds(5), mode="delay")
    first = after(RestartWindow(), 0, policy=policy)

    second = decide(first.window, policy, outcome=FAILED, on_success=True, now=UnixNano(T0 + seconds(10)), chance=0.9)

    assert second == Restart(second.window, seconds(50), REASON_DELAY)


def test_an_unrecoverable_start_error_is_final():
    answer = after(RestartWindow(), 0, outcome=RestartOutcome(is_recoverable=False))

    assert answer == NoRestart(RestartWindow(), True, REASON_UNRECOVERABLE)


def test_no_attempts_means_no_restart():
    answer = after(RestartWindow(), 0, policy=RestartPolicy(attempts=0, mode="fail"))

    assert answer == NoRestart(RestartWindow(), True, REASON_NO_RESTARTS)


def test_a_batch_task_that_ended_well_is_done():
    answer = decide(
        RestartWindow(), POLICY, outcome=RestartOutcome(is_success=True), on_success=False, now=T0, chance=0.5
    )

    assert answer == NoRestart(RestartWindow(), False, "")


@given(
    attempts=st.integers(0, 5),
    interval_s=st.integers(5, 600),
    delay_s=st.integers(0, 30),
    gaps=st.lists(st.integers(0, 200), max_size=40),
    chance=st.floats(0, 0.999),
)
def test_no_window_ever_holds_more_restarts_than_the_policy_allows(attempts, interval_s, delay_s, gaps, chance):
    policy = RestartPolicy(attempts=attempts, interval=seconds(interval_s), delay=seconds(delay_s), mode="fail")
    window, now, restarts = RestartWindow(), T0, []
    for gap in gaps:
        now = UnixNano(now + seconds(gap))
        answer = decide(window, policy, outcome=FAILED, on_success=True, now=now, chance=chance)
        window = answer.window
        if isinstance(answer, NoRestart):
            break
        restarts.append((window.start, now))
        assert policy.delay <= answer.delay <= policy.delay * 5 // 4
        now = UnixNano(now + answer.delay)

    for start in {start for start, _ in restarts}:
        assert sum(each == start for each, _ in restarts) <= attempts
