"""Checks of a job that do not depend on the state of a cluster.

Every rule is checked and all problems are reported at once, in Nomad's form: "N error(s) occurred:" and a line for
each, nested where a group or task is at fault. The job has its defaults filled in. The rules of groups are
here, those of tasks, services and networks in `task` and `service`. Limits that operators set
(priority, total count) are checked by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from yurt.rules.no_effect import constraint_doubts, group_no_effects, is_gateway
from yurt.rules.periodic import expressions, parsed, time_zone
from yurt.rules.problems import duplicates, multi_error, near_hint, nested, one_of
from yurt.rules.validation.policies import affinity_problems, constraint_problems, policy_problems, spread_problems
from yurt.rules.validation.service import network_problems, service_problems, volume_problems
from yurt.rules.validation.task import task_problems, task_warnings
from yurt.sdk.errors import Invalid
from yurt.structs import status
from yurt.structs.job import Job, TaskGroup
from yurt.structs.volumes.host import BLOCK_DEVICE, FILE_SYSTEM

UI_DESCRIPTION_MAX = 1000
EPHEMERAL_DISK_MIN_MB = 10
NAMESPACE = re.compile(r"[a-zA-Z0-9-]{1,128}\Z")
NODE_POOL = re.compile(r"[a-zA-Z0-9-_]{1,128}\Z")
NAME_MAX = 1024
PAYLOADS = ("optional", "required", "forbidden")
VERDICTS_MAX = 4
"""The number of cached verdicts, enough for the groups of jobs that are registered in turns."""

__all__ = ["multi_error", "validate_job"]


def validate_job(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(errors, warnings) of a job."""
    verdicts = [_verdicts.of(job, group) for group in job.task_groups]
    errors = [*_job_problems(job), *_kind_problems(job)]
    errors.extend(text for verdict in verdicts for text in verdict.problems)
    warnings = [*_periodic_doubts(job), *constraint_doubts(job.constraints)]
    warnings.extend(text for verdict in verdicts for text in verdict.warnings)
    return tuple(errors), tuple(warnings)


class _Verdict(msgspec.Struct, frozen=True):
    """The problems of a group in a job of a type, which do not depend on the rest of the job."""

    job_type: str
    group: TaskGroup
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class _Verdicts:
    """A cache of recent verdicts: similar jobs arrive in batches, and each is planned before it runs."""

    def __init__(self) -> None:
        self._last: tuple[_Verdict, ...] = ()

    def of(self, job: Job, group: TaskGroup) -> _Verdict:
        """The errors and warnings of a group."""
        for verdict in self._last:
            if verdict.job_type == job.type and verdict.group == group:
                return verdict
        found = _Verdict(
            job.type,
            group,
            tuple(nested(f"Task group {group.name}", group_problems(job, group))),
            tuple(f'Group "{group.name}" has warnings: {text}' for text in group_warnings(group)),
        )
        self._last = (found, *self._last[: VERDICTS_MAX - 1])
        return found


_verdicts = _Verdicts()


def _job_problems(job: Job) -> Iterator[str]:
    if not job.region:
        yield "Missing job region"
    if not job.id:
        yield "Missing job ID"
    elif " " in job.id:
        yield "Job ID contains a space"
    elif "\0" in job.id:
        yield "Job ID contains a null character"
    if not job.name:
        yield "Missing job name"
    elif "\0" in job.name:
        yield "Job Name contains a null character"
    if len(job.id) > NAME_MAX or len(job.name) > NAME_MAX:
        yield f"Job ID and name may have {NAME_MAX} characters at most"
    if not NAMESPACE.match(job.namespace):
        yield "Job must be in a namespace" if not job.namespace else f'invalid namespace name "{job.namespace[:64]}"'
    if not NODE_POOL.match(job.node_pool):
        yield f'invalid node pool "{job.node_pool[:64]}": it may hold letters, digits, - and _, 128 at most'
    if not job.datacenters:
        yield "Missing job datacenters"
    elif not all(job.datacenters):
        yield "Job datacenter must be non-empty string"
    if not job.task_groups:
        yield "Missing job task groups"
    if job.ui is not None and len(job.ui.description) > UI_DESCRIPTION_MAX:
        yield f"UI description must be under {UI_DESCRIPTION_MAX} characters, currently {len(job.ui.description)}"
    if job.payload and not job.dispatched:
        yield "Job can't be submitted with a payload, only dispatched"
    yield from constraint_problems(job.constraints, "Constraint")
    yield from affinity_problems(job.affinities, "Affinity", job.type)
    yield from spread_problems(job.spreads, "Spread", job.type)
    yield from _group_name_problems(job.task_groups)


def _group_name_problems(groups: tuple[TaskGroup, ...]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for number, group in enumerate(groups, start=1):
        if not group.name:
            yield f"Job task group {number} missing name"
        elif group.name in seen:
            yield f"Job task group {number} redefines '{group.name}' from group {seen[group.name]}"
        else:
            seen[group.name] = number


def _kind_problems(job: Job) -> Iterator[str]:
    """Problems of the job type and of blocks that only some types permit."""
    if job.type == status.JOB_CORE:
        yield "job type cannot be core"
    elif job.type not in status.JOB_TYPES:
        hint = near_hint(job.type, status.JOB_TYPES)
        yield f'Invalid job type: "{job.type[:64]}"; use {one_of(status.JOB_TYPES)}{hint}'
    is_batch = job.type in (status.JOB_BATCH, status.JOB_SYSBATCH)
    if job.periodic is not None:
        if not is_batch:
            yield f'Periodic can only be used with "{status.JOB_BATCH}" or "{status.JOB_SYSBATCH}" scheduler'
        yield from nested("periodic", _periodic_problems(job), sep=" ")
    if job.parameterized_job is not None:
        if not is_batch:
            yield f'Parameterized job can only be used with "{status.JOB_BATCH}" or "{status.JOB_SYSBATCH}" scheduler'
        yield from _parameterized_problems(job)
    if job.multiregion is not None and job.multiregion.regions:
        yield "Multiregion jobs are not available in this version of Yurt: remove the multiregion block"


def _periodic_problems(job: Job) -> Iterator[str]:
    periodic = job.periodic
    if periodic is None or not periodic.enabled:
        return
    if periodic.spec and periodic.specs:
        yield "Only one of cron or crons may be used"
    specs = expressions(periodic)
    if not specs:
        yield "Must specify a spec"
    if periodic.spec_type not in ("cron", "_internal_test"):
        yield f'Unknown periodic specification type "{periodic.spec_type[:64]}"'
    try:
        time_zone(periodic.time_zone)
        for spec in specs if periodic.spec_type == "cron" else ():
            parsed(spec)
    except Invalid as error:
        yield str(error)


def _parameterized_problems(job: Job) -> Iterator[str]:
    declaration = job.parameterized_job
    assert declaration is not None
    if declaration.payload not in ("", *PAYLOADS):
        hint = near_hint(declaration.payload, PAYLOADS)
        yield f'Unknown payload requirement: "{declaration.payload[:64]}"; use {one_of(PAYLOADS)}{hint}'
    both = sorted(set(declaration.meta_required) & set(declaration.meta_optional))
    if both:
        yield f"Required and optional meta keys should be disjoint. Following keys exist in both: {', '.join(both)}"


def group_problems(job: Job, group: TaskGroup) -> Iterator[str]:
    """Problems inside one group."""
    if group.gang is not None:
        from yurt.rules.validation.gang import gang_problems

        yield from gang_problems(job, group, group.gang)
    if group.requeue is not None or group.checkpoint is not None:
        from yurt.rules.validation.preemption import preemption_problems

        yield from preemption_problems(job, group)
    if any(device.idle or device.first_available for task in group.tasks for device in task.resources.devices):
        from yurt.rules.validation.idle import idle_group_problems

        yield from idle_group_problems(job, group)
    if "\0" in group.name:
        yield "Task group name contains null character"
    if group.count < 0:
        yield "Task group count can't be negative"
    if job.type == status.JOB_SYSTEM and group.count > 1:
        yield f"Job task group {group.name} has count {group.count}. Count cannot exceed 1 with system scheduler"
    if not group.tasks:
        yield _missing_tasks(group)
    yield from _lifetime_problems(job, group)
    yield from constraint_problems(group.constraints, "Constraint")
    yield from affinity_problems(group.affinities, "Affinity", job.type)
    yield from spread_problems(group.spreads, "Spread", job.type)
    yield from policy_problems(job, group)
    yield from network_problems(group)
    yield from volume_problems(group)
    yield from service_problems(group)
    yield from _scaling_problems(group)
    yield from _task_set_problems(group)
    for task in group.tasks:
        yield from nested(f"Task {task.name}", task_problems(job, group, task))


def _missing_tasks(group: TaskGroup) -> str:
    """The problem of a group without tasks, unless it has a Connect gateway, whose task Nomad adds itself."""
    gateways = [service.name for service in group.services if is_gateway(service)]
    if gateways:
        return (
            f'Missing tasks for task group: service "{gateways[0][:64]}" is a Connect gateway, and gateways are not '
            "available in this version; add a task that runs a proxy"
        )
    return "Missing tasks for task group"


def _lifetime_problems(job: Job, group: TaskGroup) -> Iterator[str]:
    if group.ephemeral_disk.size_mb < EPHEMERAL_DISK_MIN_MB:
        yield f"minimum DiskMB value is {EPHEMERAL_DISK_MIN_MB}; got {group.ephemeral_disk.size_mb}"
    if group.max_run_duration < 0:
        yield "max_run_duration must be a positive duration"
    elif group.max_run_duration and job.type not in (status.JOB_BATCH, status.JOB_SYSBATCH):
        yield f'max_run_duration can only be used with "{status.JOB_BATCH}" or "{status.JOB_SYSBATCH}" jobs'
    if group.shutdown_delay < 0:
        yield "ShutdownDelay must be a positive value"


def _scaling_problems(group: TaskGroup) -> Iterator[str]:
    scaling = group.scaling
    if scaling is None:
        return
    if scaling.type not in ("", "horizontal"):
        yield f'scaling policy type "{scaling.type[:64]}" is not valid for a group: use "horizontal"'
    if scaling.min < 0:
        yield "Scaling policy invalid: minimum count must be specified and non-negative"
    if scaling.max < scaling.min:
        yield "Scaling policy invalid: maximum count must not be less than minimum count"
    elif group.count > scaling.max:
        yield "Scaling policy invalid: task group count must not be greater than maximum count in scaling policy"
    if group.count < scaling.min:
        yield "Scaling policy invalid: task group count must not be less than minimum count in scaling policy"


def _task_set_problems(group: TaskGroup) -> Iterator[str]:
    """Problems between the group's tasks: names, leaders and lifecycles."""
    for number, task in enumerate(group.tasks, start=1):
        if not task.name:
            yield f"Task {number} missing name"
    for name in duplicates(task.name for task in group.tasks if task.name):
        yield f"Task name '{name}' is used more than once in the group"
    if sum(task.leader for task in group.tasks) > 1:
        yield "Only one task may be marked as leader"
    if group.tasks and all(task.lifecycle is not None for task in group.tasks):
        yield f"Task group {group.name} has no main task: at least one task must have no lifecycle block"


def _periodic_doubts(job: Job) -> Iterator[str]:
    if job.periodic is not None and job.periodic.spec:
        yield (
            "periodic: cron is deprecated and may be removed in a future release: "
            f'write crons = ["{job.periodic.spec[:64]}"] instead'
        )


def _lacks_shutdown_delay(group: TaskGroup) -> bool:
    """Whether a service is deregistered only at the moment at which its task is stopped."""
    if group.shutdown_delay > 0:
        return False
    owners = [task for task in group.tasks if task.services or group.services]
    return any(task.shutdown_delay == 0 and not task.lifecycle for task in owners)


def group_warnings(group: TaskGroup) -> Iterable[str]:
    """Valid but probably unintended settings."""
    update = group.update
    if update is not None and update.max_parallel > group.count > 1:
        yield (
            f"Update max parallel count is greater than task group count ({update.max_parallel} > {group.count}). "
            "A destructive change would result in the simultaneous replacement of all allocations."
        )
    for field, is_set in (
        ("max_client_disconnect", group.max_client_disconnect > 0),
        ("stop_after_client_disconnect", group.stop_after_client_disconnect > 0),
        ("prevent_reschedule_on_lost", group.prevent_reschedule_on_lost),
    ):
        if is_set:
            yield f"{field} has no effect: use the disconnect block instead"
    for name, volume in group.volumes.items():
        if volume.attachment_mode == BLOCK_DEVICE:
            yield (
                f'volume "{name}": attachment_mode "{BLOCK_DEVICE}" is not available in this version: '
                f'its tasks will not start; use "{FILE_SYSTEM}"'
            )
    if _lacks_shutdown_delay(group):
        yield (
            "it has services but no shutdown_delay: requests may reach its tasks after they were stopped; "
            'a delay such as shutdown_delay = "5s" gives callers time to learn of the end'
        )
    yield from group_no_effects(group)
    yield from constraint_doubts(group.constraints)
    for task in group.tasks:
        yield from (f'Task "{task.name}" has warnings: {text}' for text in task_warnings(group, task))
