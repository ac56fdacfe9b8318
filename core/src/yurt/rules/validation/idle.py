"""Rules for the block `idle` of a device, of a namespace and of a node pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from yurt.rules.idle import idle_blocks
from yurt.rules.problems import near_hint, one_of
from yurt.rules.task_schedule import schedule_problems
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.structs import status
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import IdlePolicy, InteractiveHours, InteractivePolicy
from yurt.structs.queueing.idle import ACTIONS, ANY, CONDITIONS, NOTIFY, REQUEUE, SELECTIONS, SHRINK
from yurt.structs.task import TaskSchedule, TaskScheduleCron

WINDOW_MIN: Final = NANOSECONDS
DURATION_MAX: Final = 30 * 24 * 3600 * NANOSECONDS
GRACE_MAX: Final = 24 * 3600 * NANOSECONDS
WARNINGS_MAX: Final = 8
KEEPS_MAX: Final = 100


def idle_schedule(hours: InteractiveHours) -> TaskSchedule:
    """The hours in the form of a task's schedule, which is read in the same way; without a zone they are in UTC.

    A leader reads them, and the next one may run in another zone: "Local" would change with each election.
    """
    zone = "UTC" if hours.timezone in ("", "Local") else hours.timezone
    return TaskSchedule(cron=TaskScheduleCron(start=hours.start, end=hours.end, timezone=zone))


def idle_group_problems(job: Job, group: TaskGroup) -> Iterator[str]:
    """Problems of the `idle` blocks of a group's devices, each with its key."""
    found = list(idle_blocks(group))
    if len(found) > 1:
        yield f"idle can be given once in a group, for all its devices: there are {len(found)} idle blocks"
    for task in group.tasks:
        for device in task.resources.devices:
            if any(other.idle is not None for other in device.first_available):
                yield "idle belongs to the device block itself, not to its alternatives in first_available"
    for policy in found[:1]:
        yield from idle_problems(policy)
        if policy.enforce:
            yield "idle enforce is for namespaces and node pools: a job's own block holds for that job alone"
        yield from _action_problems(job, group, policy)


def _action_problems(job: Job, group: TaskGroup, policy: IdlePolicy) -> Iterator[str]:
    action = policy.action
    if job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH) and action != NOTIFY:
        yield f'idle action "{action[:64]}" cannot be used with {job.type} jobs: use "notify"'
    elif action == REQUEUE and job.type != status.JOB_BATCH:
        yield f'idle action "requeue" can only be used with batch jobs: use "stop" or "notify" in a {job.type} job'
    elif action == SHRINK and (group.gang is None or not group.gang.elastic):
        yield 'idle action "shrink" needs an elastic gang: gang { elastic = true rendezvous { ... } }'


def idle_problems(policy: IdlePolicy) -> Iterator[str]:
    """Problems of one `idle` block."""
    if not 1 <= policy.below <= 100:
        yield f"idle below must be from 1 to 100 percent (got {policy.below})"
    yield from _choice("gpus", policy.gpus, SELECTIONS)
    yield from _choice("action", policy.action, ACTIONS)
    yield from _choice("when", policy.when, CONDITIONS)
    if policy.gpus == ANY and policy.action in ACTIONS and policy.action != NOTIFY:
        yield f'idle gpus = "any" needs action = "notify", since an allocation ends as a whole (got "{policy.action}")'
    if not WINDOW_MIN <= policy.window <= DURATION_MAX:
        yield f"idle window must be from 1s to 30 days (got {duration_text(policy.window)})"
    for key, value, most in (("first", policy.first, DURATION_MAX), ("grace", policy.grace, GRACE_MAX)):
        if not 0 <= value <= most:
            longest = "30 days" if most == DURATION_MAX else "24 hours"
            yield f"idle {key} must be from 0s to {longest} (got {duration_text(value)})"
    if policy.window >= WINDOW_MIN:
        yield from _warning_problems(policy)
    if policy.interactive is not None:
        yield from _interactive_problems(policy, policy.interactive)


def _choice(key: str, value: str, choices: Sequence[str]) -> Iterator[str]:
    if value not in choices:
        hint = near_hint(value, choices) or f": use {one_of(choices)}"
        yield f'idle {key} "{value[:64]}" is not valid{hint}'


def _warning_problems(policy: IdlePolicy) -> Iterator[str]:
    if len(policy.warn) > WARNINGS_MAX:
        yield f"idle warn can hold {WARNINGS_MAX} times (got {len(policy.warn)})"
    for each in policy.warn[:WARNINGS_MAX]:
        if not 0 < each < policy.window:
            yield f"idle warn {duration_text(each)} must lie within the window of {duration_text(policy.window)}"
    if list(policy.warn) != sorted(set(policy.warn)):
        yield "idle warn must be given in ascending order, each time once"


def _interactive_problems(policy: IdlePolicy, block: InteractivePolicy) -> Iterator[str]:
    if block.window and not policy.window <= block.window <= DURATION_MAX:
        yield (
            f"idle interactive window must be at least the window, {duration_text(policy.window)}, and at most "
            f"30 days (got {duration_text(block.window)})"
        )
    if not 0 <= block.keep <= KEEPS_MAX:
        yield f"idle interactive keep must be from 0 to {KEEPS_MAX} (got {block.keep})"
    if block.hours is not None:
        for problem in schedule_problems(idle_schedule(block.hours)):
            yield f"idle interactive hours: {problem.removeprefix('Schedule: ')}"
