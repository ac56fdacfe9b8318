"""Allocations that do not use their devices: the effective policy, and predicates on idleness."""

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
    """The policy on a group's allocations that do not use their devices; None without one."""
    if group is None:
        return None
    for task in group.tasks:
        for device in task.resources.devices:
            if device.idle is not None:
                return device.idle
    return None


def idle_policy_of(alloc: Allocation) -> IdlePolicy | None:
    """The policy of an allocation, by its own job version."""
    return idle_policy(alloc.job.group(alloc.task_group)) if alloc.job is not None else None


def job_version_of(alloc: Allocation) -> int:
    """The job version that an allocation runs."""
    return alloc.job.version if alloc.job is not None else 0


def is_same_policy(one: IdlePolicy | None, other: IdlePolicy | None) -> bool:
    """Whether two policies are equal apart from their source."""
    if one is None or other is None:
        return one is other
    return replace(one, source="", enforce=False) == replace(other, source="", enforce=False)


def is_of_earlier_policy(idle: IdleState, job_version: int | None) -> bool:
    """Whether a report of this job version was measured under a policy that an update in place has replaced.

    A report without a version, of an older agent, counts as such after an update: it must end nothing early.
    """
    return idle.policy_version > 0 and (job_version is None or job_version < idle.policy_version)


def unmeasured(idle: IdleState, index: int) -> IdleState:
    """The state of an allocation of which nothing is known: an announced end is void, counts stay."""
    kept = IdleState(
        kept_until=idle.kept_until,
        keeps=idle.keeps,
        kept_free=idle.kept_free,
        spared_by_use=idle.spared_by_use,
        spared_by_keep=idle.spared_by_keep,
        policy_version=idle.policy_version,
    )
    return replace(kept, report_index=index)


def is_kept(idle: IdleState, policy: IdlePolicy, now: int) -> bool:
    """Whether the end of an allocation is put off; a keep call made while no job waited ends when one does."""
    return idle.kept_until > now and not (idle.kept_free and policy.when == CONTENDED)


def least_of(group: TaskGroup, action: str) -> int:
    """The count below which the action must not reduce a group."""
    if action == SHRINK and group.gang is not None:
        return group.gang.min or group.count
    return group.scaling.min if group.scaling is not None else 0


def is_idle(alloc: Allocation) -> bool:
    """Whether an allocation runs, is reported as idle, and its policy has an action other than to notify."""
    idle, policy = alloc.idle, idle_policy_of(alloc)
    return (
        idle is not None
        and idle.idle_for > 0
        and policy is not None
        and policy.action != NOTIFY
        and alloc.client_status == CLIENT_RUNNING
        and not is_terminal(alloc)
    )
