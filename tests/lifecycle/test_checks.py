"""One check of a service: events in, decisions out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.lifecycle import checks
from yurt.lifecycle.checks import FAILURE, READINESS, SUCCESS, CheckOutcome, CheckSpec
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.testing.factories import NOW

OK = CheckOutcome(True, "nomad: tcp ok")
BAD = CheckOutcome(False, "nomad: tcp check failed: refused")
SPEC = CheckSpec(id="c", name="alive", kind="tcp", service="web", group="g", interval=seconds(10), limit=3)


def at(seconds_later: float) -> UnixNano:
    return UnixNano(NOW + round(seconds_later * 1e9))


def restarts(spec: CheckSpec, outcomes: list[CheckOutcome]) -> list[int]:
    """The numbers of the answers after which the task is restarted, one answer an interval."""
    run, found = checks.begin(spec, now=NOW), []
    for number, outcome in enumerate(outcomes):
        run, is_restart = checks.observed(spec, run, outcome, now=at(10 * number))
        if is_restart:
            found.append(number)
    return found


def test_a_check_is_asked_at_once_and_then_each_interval() -> None:
    run = checks.begin(SPEC, now=NOW)
    assert (run.status, run.next_at) == ("pending", NOW)
    after = checks.observed(SPEC, run, OK, now=at(1)).run
    assert (after.status, after.next_at, after.timestamp, after.output) == (SUCCESS, at(11), at(1), "nomad: tcp ok")


def test_failures_in_a_row_restart_the_task_and_the_count_begins_anew() -> None:
    assert restarts(SPEC, [BAD] * 7) == [2, 5]


def test_a_success_between_failures_saves_the_task() -> None:
    assert restarts(SPEC, [BAD, BAD, OK, BAD, BAD, OK]) == []


def test_failures_within_the_grace_do_not_count() -> None:
    assert restarts(replace(SPEC, grace=seconds(25)), [BAD] * 6) == [5]


def test_a_restart_of_the_task_begins_the_grace_anew() -> None:
    spec = replace(SPEC, grace=seconds(5), limit=1)
    run = checks.restarted(spec, checks.begin(spec, now=NOW), now=at(100))
    assert run.next_at == at(100)
    assert not checks.observed(spec, run, BAD, now=at(104)).is_restart
    assert checks.observed(spec, run, BAD, now=at(105)).is_restart


def test_without_a_limit_nothing_is_restarted() -> None:
    assert restarts(replace(SPEC, limit=0), [BAD] * 50) == []


def test_only_checks_of_healthiness_hold_a_deployment_up() -> None:
    good = checks.observed(SPEC, checks.begin(SPEC, now=NOW), OK, now=NOW).run
    bad = checks.observed(SPEC, checks.begin(SPEC, now=NOW), BAD, now=NOW).run
    assert bad.status == FAILURE
    assert checks.all_pass([(SPEC, good)])
    assert not checks.all_pass([(SPEC, good), (SPEC, bad)])
    assert not checks.all_pass([(SPEC, checks.begin(SPEC, now=NOW))])
    assert checks.all_pass([(SPEC, good), (replace(SPEC, mode=READINESS), bad)])


def test_http_answers_below_300_succeed() -> None:
    assert checks.http_outcome(204, "") == CheckOutcome(True, "nomad: http ok", 204)
    assert checks.http_outcome(301, "moved") == CheckOutcome(False, "moved", 301)
    assert checks.http_outcome(500, "").output == "nomad: http answered 500"
    assert len(checks.http_outcome(500, "x" * 10_000).output) == checks.OUTPUT_MAX


def test_the_api_is_told_in_whole_seconds() -> None:
    run = checks.observed(SPEC, checks.begin(SPEC, now=NOW), OK, now=at(1.5)).run
    told = checks.status_of(SPEC, run)
    assert (told.check, told.status, told.timestamp) == ("alive", SUCCESS, NOW // 10**9 + 1)


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_between_two_restarts_lie_at_least_the_limit_of_failures(answers: list[bool], limit: int) -> None:
    outcomes = [OK if is_ok else BAD for is_ok in answers]
    last = -1
    for number in restarts(replace(SPEC, limit=limit), outcomes):
        assert not any(answers[number - limit + 1 : number + 1])
        assert number - last >= limit
        last = number
