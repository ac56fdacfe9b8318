"""The order of an allocation's tasks: which may start, which must end, and the allocation's status.

All decisions follow from the current task states (level-triggered), so that they are the same after a restart of the
agent and do not depend on the order of events.

Order: prestart tasks first (the sidecars among them must run, the others must have succeeded); then main tasks;
poststart tasks once every main task has started; poststop tasks once every other task is dead. Sidecars end when the
main tasks are dead. A leader's end ends the others. A failed task ends the others, unless it is a sidecar that does
not lead. Stopping: the leader alone, then the other main, prestart and poststart tasks together, then the sidecars;
poststop tasks run and are not killed, unless `max_run_duration` is over. (Rules: Nomad's `lifecycle` block.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from yurt.lifecycle import events
from yurt.sdk.value import UnixNano, Value
from yurt.structs.alloc import TaskEvent, TaskState
from yurt.structs.job import TaskGroup
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_FAILED,
    CLIENT_PENDING,
    CLIENT_RUNNING,
    JOB_SERVICE,
    JOB_SYSTEM,
    TASK_DEAD,
    TASK_PENDING,
    TASK_RUNNING,
    ClientStatus,
)
from yurt.structs.task import Task

PRESTART: Final = "prestart"
POSTSTART: Final = "poststart"
POSTSTOP: Final = "poststop"

DESCRIPTIONS: Final = {
    CLIENT_FAILED: "Failed tasks",
    CLIENT_RUNNING: "Tasks are running",
    CLIENT_PENDING: "No tasks have started",
    CLIENT_COMPLETE: "All tasks have completed",
}


class Role(Value):
    """A task's position in its group's order; a main task has no lifecycle hook."""

    name: str
    hook: str = ""
    is_sidecar: bool = False
    is_leader: bool = False


class Stop(Value):
    """The allocation must end; `reason` goes to every task, `is_expired` also kills poststop tasks."""

    reason: TaskEvent | None = None
    is_expired: bool = False
    is_failure: bool = False


class Orders(msgspec.Struct, frozen=True):
    """Tasks that may start now, and tasks that must end now with the reason."""

    begin: tuple[str, ...] = ()
    kill: tuple[tuple[str, TaskEvent | None], ...] = ()


def roles(group: TaskGroup) -> tuple[Role, ...]:
    """The roles of a group's tasks."""
    return tuple(_role(task) for task in group.tasks)


def _role(task: Task) -> Role:
    lifecycle = task.lifecycle
    return Role(
        name=task.name,
        hook=lifecycle.hook if lifecycle else "",
        is_sidecar=bool(lifecycle and lifecycle.sidecar),
        is_leader=task.leader,
    )


def restarts_on_success(task: Task, job_type: str) -> bool:
    """Whether a task restarts after success: tasks of service and system jobs, and sidecars, should never end."""
    if task.lifecycle is not None and task.lifecycle.hook:
        return task.lifecycle.sidecar
    return job_type in (JOB_SERVICE, JOB_SYSTEM)


def _is_dead(state: TaskState) -> bool:
    return state.state == TASK_DEAD


def decide(all_roles: tuple[Role, ...], states: Mapping[str, TaskState], *, stop: Stop | None) -> Orders:
    """The orders that follow from the current task states."""
    orders = _orders(all_roles, states, stop)
    killed = {name for name, _ in orders.kill}
    assert killed.isdisjoint(orders.begin), (orders, "no task is started and ended at once")
    assert all(_waits(states[name]) for name in orders.begin), (orders, "only waiting tasks may begin")
    assert not any(_is_dead(states[name]) for name in killed), (orders, "a dead task is not killed again")
    return orders


def _orders(all_roles: tuple[Role, ...], states: Mapping[str, TaskState], stop: Stop | None) -> Orders:
    if stop is not None:
        return _stop_orders(all_roles, states, stop)
    ending = _ending(all_roles, states)
    if ending:
        return Orders(_poststop_ready(all_roles, states), ending)
    return Orders(_startable(all_roles, states))


def _stop_orders(all_roles: tuple[Role, ...], states: Mapping[str, TaskState], stop: Stop) -> Orders:
    live = [role for role in all_roles if not _is_dead(states[role.name])]
    leaders = [role for role in live if role.is_leader and role.hook != POSTSTOP]
    others = [role for role in live if not role.is_sidecar and role.hook != POSTSTOP]
    sidecars = [role for role in live if role.is_sidecar and role.hook != POSTSTOP]
    first = leaders or others or sidecars
    if not first and stop.is_expired:
        first = live
    begin = () if stop.is_expired else _poststop_ready(all_roles, states)
    return Orders(begin, tuple((role.name, stop.reason) for role in first))


def _ending(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> tuple[tuple[str, TaskEvent | None], ...]:
    """Tasks that must end because of other tasks' states."""
    reason = _end_reason(all_roles, states)
    victims = [role for role in all_roles if role.hook != POSTSTOP and not _is_dead(states[role.name])]
    if reason is not None:
        return tuple((role.name, reason) for role in victims)
    mains = [role for role in all_roles if not role.hook]
    if mains and all(_is_dead(states[role.name]) for role in mains):
        sidecars = [role for role in victims if role.is_sidecar]
        return tuple((role.name, events.main_tasks_dead()) for role in sidecars)
    return ()


def _end_reason(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> TaskEvent | None:
    failed = next((role for role in all_roles if _fails_group(role, states[role.name])), None)
    if failed is not None:
        return events.sibling_failed(failed.name)
    if any(role.is_leader and _is_dead(states[role.name]) for role in all_roles):
        return events.leader_dead()
    return None


def _fails_group(role: Role, state: TaskState) -> bool:
    """Whether a task's failure ends the group: a sidecar's only if it leads or blocks the main tasks' start."""
    if not (_is_dead(state) and state.failed):
        return False
    return role.is_leader or not role.is_sidecar or (role.hook == PRESTART and not state.started_at)


def _poststop_ready(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> tuple[str, ...]:
    if not all(_is_dead(states[role.name]) for role in all_roles if role.hook != POSTSTOP):
        return ()
    return tuple(role.name for role in all_roles if role.hook == POSTSTOP and _waits(states[role.name]))


def _waits(state: TaskState) -> bool:
    return state.state == TASK_PENDING


def _startable(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> tuple[str, ...]:
    """Tasks that the order lets start now; it may name tasks that are being started already."""
    by_hook: dict[str, list[Role]] = {}
    for role in all_roles:
        by_hook.setdefault(role.hook, []).append(role)
    ready = list(by_hook.get(PRESTART, ()))
    mains = by_hook.get("", [])
    if all(_is_prestart_done(role, states[role.name]) for role in ready):
        ready += mains
        if all(states[role.name].started_at for role in mains):
            ready += by_hook.get(POSTSTART, ())
    names = tuple(role.name for role in ready if _waits(states[role.name]))
    return names + _poststop_ready(all_roles, states)


def _is_prestart_done(role: Role, state: TaskState) -> bool:
    """Whether a prestart task no longer delays others: a sidecar has started once, any other has succeeded."""
    return bool(state.started_at) if role.is_sidecar else _is_dead(state) and not state.failed


def client_status(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> tuple[ClientStatus, str]:
    """The allocation's status and Nomad's description of it.

    First match of: failed, running, pending, complete. Two readings keep an end final: a sidecar that failed counts
    once everything else is dead, and a poststop task that still waits behind tasks that ran counts as running.
    """
    status = _status(all_roles, states)
    is_end = all(_is_dead(states[role.name]) for role in all_roles)
    assert not is_end or status in (CLIENT_COMPLETE, CLIENT_FAILED), (status, "without a live task it is over")
    assert is_end or status != CLIENT_COMPLETE, "it is complete when its last task has ended, not before"
    return status, DESCRIPTIONS[status]


def _status(all_roles: tuple[Role, ...], states: Mapping[str, TaskState]) -> ClientStatus:
    if any(_fails_group(role, states[role.name]) for role in all_roles):
        return CLIENT_FAILED
    live = [role for role in all_roles if not _is_dead(states[role.name])]
    if not live:
        return CLIENT_FAILED if any(states[role.name].failed for role in all_roles) else CLIENT_COMPLETE
    if any(states[role.name].state == TASK_RUNNING for role in live):
        return CLIENT_RUNNING
    has_run = any(state.started_at for state in states.values())
    if has_run and all(role.hook == POSTSTOP for role in live):
        return CLIENT_RUNNING
    return CLIENT_PENDING


def running_since(states: Mapping[str, TaskState]) -> UnixNano:
    """The time of the first start of any task, as far as recorded; 0 when none has started."""
    starts = [state.started_at for state in states.values() if state.started_at]
    starts += [event.time for state in states.values() for event in state.events if event.type == events.STARTED]
    return UnixNano(min(starts, default=0))


def is_over(states: Mapping[str, TaskState]) -> bool:
    """Whether no task will run again."""
    return all(_is_dead(state) for state in states.values())
