"""When an allocation counts as healthy, and when it never will."""

from __future__ import annotations

from yurt.lifecycle.allocation import Role
from yurt.lifecycle.health import HealthMachine, advance, watch
from yurt.sdk.value import UnixNano, seconds
from yurt.structs.alloc import TaskState
from yurt.structs.status import TASK_DEAD, TASK_RUNNING

T0 = UnixNano(1_700_000_000_000_000_000)
WEB = (Role(name="web"),)


def at(after_s: float) -> UnixNano:
    return UnixNano(T0 + seconds(after_s))


def watched(check: str = "checks") -> HealthMachine:
    return watch(check, min_healthy_time=seconds(10), healthy_deadline=seconds(300), started=T0)


def running(since_s: float) -> dict[str, TaskState]:
    return {"web": TaskState(state=TASK_RUNNING, started_at=at(since_s))}


def test_a_task_that_runs_long_enough_is_healthy():
    first = advance(watched(), WEB, running(1), checks_pass=True, now=at(1))
    assert first.machine.is_healthy is None and first.wake_at == at(11)

    assert advance(first.machine, WEB, running(1), checks_pass=True, now=at(11)).machine.is_healthy is True


def test_a_restart_starts_the_time_anew():
    first = advance(watched(), WEB, running(1), checks_pass=True, now=at(1))

    again = advance(first.machine, WEB, running(8), checks_pass=True, now=at(11))

    assert again.machine.is_healthy is None and again.wake_at == at(18)


def test_a_clock_that_was_set_back_delays_the_verdict():
    first = advance(watched(), WEB, running(1), checks_pass=True, now=at(2))

    earlier = advance(first.machine, WEB, running(1), checks_pass=True, now=at(-60))

    assert earlier.machine.is_healthy is None and earlier.wake_at == at(12)


def test_a_failed_task_is_unhealthy_at_once():
    dead = {"web": TaskState(state=TASK_DEAD, failed=True)}

    step = advance(watched(), WEB, dead, checks_pass=True, now=at(1))

    assert step.machine.is_healthy is False and step.wake_at == 0


def test_a_main_task_that_ends_well_too_early_is_unhealthy():
    dead = {"web": TaskState(state=TASK_DEAD)}

    assert advance(watched(), WEB, dead, checks_pass=True, now=at(1)).machine.is_healthy is False


def test_the_deadline_decides_when_nothing_else_does():
    step = advance(watched(), WEB, {"web": TaskState()}, checks_pass=True, now=at(300))

    assert step.machine.is_healthy is False
    assert step.machine.reasons == {"web": "Task not running by deadline"}


def test_failing_checks_hold_health_up_only_when_checks_count():
    by_checks = advance(watched("checks"), WEB, running(1), checks_pass=False, now=at(20))
    by_states = advance(watched("task_states"), WEB, running(1), checks_pass=False, now=at(20))

    assert by_checks.machine.is_healthy is None
    assert by_states.machine.is_healthy is True


def test_manual_health_is_never_decided_here():
    assert advance(watched("manual"), WEB, running(1), checks_pass=True, now=at(900)).machine.is_healthy is None


def test_a_finished_prestart_task_does_not_hold_health_up():
    roles = (Role(name="init", hook="prestart"), Role(name="web"))
    states = {"init": TaskState(state=TASK_DEAD, started_at=T0), **running(1)}

    assert advance(watched("task_states"), roles, states, checks_pass=True, now=at(12)).machine.is_healthy is True
