"""Whether an allocation is healthy in its deployment or migration: decided once, by the client.

The machine is asked after each change and at the time it named. It answers healthy when every task that should run
has run, and every check has passed, for `min_healthy_time` without a break; unhealthy at once when a task failed or
ended that should not have, or at `healthy_deadline` after the start. Both answers are final. With `health_check =
"manual"` it never answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from yurt.lifecycle.allocation import POSTSTART, POSTSTOP, PRESTART, Role
from yurt.sdk.value import Duration, UnixNano, Value, duration_text, replace
from yurt.structs.alloc import TaskState
from yurt.structs.status import TASK_DEAD, TASK_RUNNING

MANUAL: Final = "manual"
CHECKS: Final = "checks"


class HealthMachine(Value):
    """`good_since` is when all conditions last became true; 0 while one is false."""

    check: str
    min_healthy_time: Duration
    deadline: UnixNano
    good_since: UnixNano = UnixNano(0)
    is_healthy: bool | None = None
    reasons: Mapping[str, str] = {}


class HealthStep(msgspec.Struct, frozen=True):
    """The machine, and the latest time of the next step; 0 when its verdict is final."""

    machine: HealthMachine
    wake_at: UnixNano


def watch(check: str, *, min_healthy_time: Duration, healthy_deadline: Duration, started: UnixNano) -> HealthMachine:
    """The machine of an allocation that was started at `started`."""
    deadline = UnixNano(started + healthy_deadline)
    return HealthMachine(check=check or CHECKS, min_healthy_time=min_healthy_time, deadline=deadline)


def advance(
    machine: HealthMachine,
    all_roles: tuple[Role, ...],
    states: Mapping[str, TaskState],
    *,
    checks_pass: bool,
    now: UnixNano,
) -> HealthStep:
    """The verdict at `now`; an allocation without checks passes them."""
    if machine.is_healthy is not None or machine.check == MANUAL:
        return HealthStep(machine, UnixNano(0))
    broken = {role.name: reason for role in all_roles if (reason := _broken(role, states[role.name]))}
    if broken:
        return HealthStep(replace(machine, is_healthy=False, reasons=broken), UnixNano(0))
    machine = replace(machine, good_since=_good_since(machine, all_roles, states, checks_pass=checks_pass, now=now))
    healthy_at = UnixNano(machine.good_since + machine.min_healthy_time) if machine.good_since else UnixNano(0)
    if healthy_at and healthy_at <= min(now, machine.deadline):
        return HealthStep(replace(machine, is_healthy=True), UnixNano(0))
    if now >= machine.deadline:
        reasons = _late_reasons(machine, all_roles, states, checks_pass=checks_pass)
        return HealthStep(replace(machine, is_healthy=False, reasons=reasons), UnixNano(0))
    wake_at = min(healthy_at, machine.deadline) if healthy_at else machine.deadline
    assert wake_at > now, (wake_at, now, "without a verdict the next step is later: no busy loop")
    return HealthStep(machine, wake_at)


def _broken(role: Role, state: TaskState) -> str:
    """The reason why the task can no longer become healthy; empty when it can."""
    if state.state != TASK_DEAD:
        return ""
    may_end = (role.hook in (PRESTART, POSTSTART) and not role.is_sidecar) or role.hook == POSTSTOP
    if state.failed:
        return "Unhealthy because of failed task"
    return "" if may_end else "Unhealthy because the task ended"


def _good_since(
    machine: HealthMachine,
    all_roles: tuple[Role, ...],
    states: Mapping[str, TaskState],
    *,
    checks_pass: bool,
    now: UnixNano,
) -> UnixNano:
    must_run = [role for role in all_roles if role.hook != POSTSTOP]
    if not all(_is_good(role, states[role.name]) for role in must_run):
        return UnixNano(0)
    if machine.check == CHECKS and not checks_pass:
        return UnixNano(0)
    last_start = max((states[role.name].started_at for role in must_run), default=0)
    since = machine.good_since or (now if machine.check == CHECKS else UnixNano(0))
    return UnixNano(max(since, last_start))


def _is_good(role: Role, state: TaskState) -> bool:
    if state.state == TASK_RUNNING:
        return role.hook != PRESTART or role.is_sidecar
    return state.state == TASK_DEAD and bool(role.hook) and not role.is_sidecar and not state.failed


def _late_reasons(
    machine: HealthMachine, all_roles: tuple[Role, ...], states: Mapping[str, TaskState], *, checks_pass: bool
) -> dict[str, str]:
    lacking = [role for role in all_roles if role.hook != POSTSTOP and not _is_good(role, states[role.name])]
    if lacking:
        return {role.name: "Task not running by deadline" for role in lacking}
    if machine.check == CHECKS and not checks_pass:
        return {role.name: "Services not healthy by deadline" for role in all_roles if role.hook != POSTSTOP}
    text = f"Task not running for min_healthy_time of {duration_text(machine.min_healthy_time)} by healthy_deadline"
    return {role.name: text for role in all_roles if role.hook != POSTSTOP}
