"""Allocations that do not use their devices: whose policy holds, and what ends them."""

from __future__ import annotations

from typing import Final

from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation, IdleState
from yurt.structs.job import TaskGroup
from yurt.structs.policies import IdlePolicy
from yurt.structs.predicates import is_terminal
from yurt.structs.status import CLIENT_RUNNING

NOTIFY: Final = "notify"
REQUEUE: Final = "requeue"
STOP: Final = "stop"
SHRINK: Final = "shrink"
ACTIONS: Final = (NOTIFY, STOP, REQUEUE, SHRINK)
CONTENDED: Final = "contended"
ALWAYS: Final = "always"
CONDITIONS: Final = (CONTENDED, ALWAYS)
ALL: Final = "all"
ANY: Final = "any"
SELECTIONS: Final = (ALL, ANY)


def idle_policy(group: TaskGroup | None) -> IdlePolicy | None:
    """What becomes of a group's allocations while they do not use their devices; None: nothing."""
    if group is None:
        return None
    for task in group.tasks:
        for device in task.resources.devices:
            if device.idle is not None:
                return device.idle
    return None


def idle_policy_of(alloc: Allocation) -> IdlePolicy | None:
    """The policy of an allocation, by the version of the job that it runs."""
    return idle_policy(alloc.job.group(alloc.task_group)) if alloc.job is not None else None


def is_same_policy(one: IdlePolicy | None, other: IdlePolicy | None) -> bool:
    """Whether two policies ask for the same, whoever says so."""
    if one is None or other is None:
        return one is other
    return replace(one, source="", enforce=False) == replace(other, source="", enforce=False)


def unmeasured(idle: IdleState, index: int) -> IdleState:
    """The state of an allocation of which nothing is known: an announced end is void, what was counted stays."""
    kept = IdleState(
        kept_until=idle.kept_until,
        keeps=idle.keeps,
        kept_free=idle.kept_free,
        spared_by_use=idle.spared_by_use,
        spared_by_keep=idle.spared_by_keep,
    )
    return replace(kept, report_index=index)


def is_kept(idle: IdleState, policy: IdlePolicy, now: int) -> bool:
    """Whether its end is put off; where it needs somebody who waits, what was put off before that holds no more."""
    return idle.kept_until > now and not (idle.kept_free and policy.when == CONTENDED)


def least_of(group: TaskGroup, action: str) -> int:
    """The count below which the action does not bring a group."""
    if action == SHRINK and group.gang is not None:
        return group.gang.min or group.count
    return group.scaling.min if group.scaling is not None else 0


def is_idle(alloc: Allocation) -> bool:
    """Whether an allocation runs, its client has reported that it is idle, and its policy ends such ones."""
    idle, policy = alloc.idle, idle_policy_of(alloc)
    return (
        idle is not None
        and idle.idle_for > 0
        and policy is not None
        and policy.action != NOTIFY
        and alloc.client_status == CLIENT_RUNNING
        and not is_terminal(alloc)
    )
