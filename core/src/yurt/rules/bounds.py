"""Size limits of jobs, and the test for jobs so large that they are processed in a thread.

What a job costs grows with what it lists: validation, its diff, the comparison with its last version, scheduling. Each
list is bounded for the job as a whole, far above what jobs have, so that no registered job can hold up a server. A job
above a bound is refused before anything else of it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from yurt.rules.periodic import expressions
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.resources import RequestedDevice
from yurt.structs.task import Task

GROUPS_MAX: Final = 500
TASKS_MAX: Final = 1_000
CONSTRAINTS_MAX: Final = 1_000
"""The maximum number of constraints, affinities and spreads, including those of devices."""
REGEXPS_MAX: Final = 100
"""The maximum number of constraints and affinities with the operator regexp."""
TEMPLATES_MAX: Final = 500
SERVICES_MAX: Final = 500
CHECKS_MAX: Final = 1_000
META_MAX: Final = 5_000
"""The maximum number of entries of all meta blocks."""
PORTS_MAX: Final = 5_000
"""The maximum number of ports in all network blocks."""
CRON_LINES_MAX: Final = 64

THREAD_PARTS: Final = 60
"""A job with more parts is validated, compared and tried in a thread: it would block the loop for 10 ms or more."""
REGEXP_PARTS: Final = 10
TEMPLATE_PART: Final = 512
"""The number of template characters that cost as much as one part."""
META_PART: Final = 64
"""The number of meta entries that cost as much as one part."""
VALUE_PART: Final = 64
"""The number of values in config and env that cost as much as one part; a reference costs as much by itself."""
PORT_PART: Final = 8
"""The number of ports that cost as much as one part."""

CONFIG_DEPTH: Final = 8
"""References in config blocks below this depth are neither checked nor counted."""


def bound_problems(job: Job) -> tuple[str, ...]:
    """The exceeded limits; none for a job that is not costly, since each limit is worth more parts."""
    tasks = _tasks(job)
    owners: list[TaskGroup | Task] = [*job.task_groups, *tasks]
    services = [service for owner in owners for service in owner.services]
    operands = _operands(job, tasks)
    networks = [network for group in job.task_groups for network in group.networks]
    networks += [network for task in tasks for network in task.resources.networks]
    counted = (
        ("task groups", len(job.task_groups), GROUPS_MAX),
        ("tasks", len(tasks), TASKS_MAX),
        ("constraints, affinities and spreads", len(operands), CONSTRAINTS_MAX),
        ("constraints and affinities with a regexp", operands.count("regexp"), REGEXPS_MAX),
        ("templates", sum([len(task.templates) for task in tasks]), TEMPLATES_MAX),
        ("services", len(services), SERVICES_MAX),
        ("checks of services", sum([len(service.checks) for service in services]), CHECKS_MAX),
        ("meta entries", len(job.meta) + sum([len(owner.meta) for owner in owners]), META_MAX),
        ("ports", _ports(networks), PORTS_MAX),
        ("cron expressions", _cron_lines(job), CRON_LINES_MAX),
    )
    return tuple(
        [
            f"the job has {count} {what}, at most {most} are possible: split it into several jobs"
            for what, count, most in counted
            if count > most
        ]
    )


def is_costly(job: Job) -> bool:
    """Whether the weighted number of a job's parts requires processing it in a thread.

    Called by every registration and evaluation, mostly for a few parts: so one pass that adds numbers, without lists.
    """
    parts = _cron_lines(job) + len(job.spreads) + _terms(job)
    meta, values, ports = len(job.meta), 0, 0
    for group in job.task_groups:
        parts += 1 + len(group.spreads) + _terms(group)
        meta += len(group.meta)
        ports += _ports(group.networks) if group.networks else 0
        for service in group.services:
            parts += 1 + len(service.checks)
        for task in group.tasks:
            parts += 1 + len(task.artifacts) + _terms(task)
            values += _weight(task.env.values(), CONFIG_DEPTH) if task.env else 0
            values += _weight(task.config.values(), CONFIG_DEPTH) if task.config else 0
            meta += len(task.meta)
            ports += _ports(task.resources.networks) if task.resources.networks else 0
            for service in task.services:
                parts += 1 + len(service.checks)
            for template in task.templates:
                parts += 1 + len(template.embedded_tmpl) // TEMPLATE_PART
            for device in task.resources.devices:
                parts += _terms(device) + sum(map(_terms, device.first_available))
    return parts + meta // META_PART + values // VALUE_PART + ports // PORT_PART > THREAD_PARTS


def _terms(owner: Job | TaskGroup | Task | RequestedDevice) -> int:
    """The weighted number of an owner's constraints and affinities."""
    parts = 0
    for constraint in owner.constraints:
        parts += REGEXP_PARTS if constraint.operand == "regexp" else 1
    for affinity in owner.affinities:
        parts += REGEXP_PARTS if affinity.operand == "regexp" else 1
    return parts


def _ports(networks: Iterable[NetworkResource]) -> int:
    """The number of ports in some network blocks."""
    count = 0
    for network in networks:
        count += len(network.reserved_ports) + len(network.dynamic_ports)
    return count


def _weight(values: Iterable[Any], depth: int) -> int:
    """The weighted number of values in a task's config or env: each `${` may be looked up on the nodes."""
    weight = 0
    for value in values:
        weight += 1
        if isinstance(value, str):
            weight += VALUE_PART * value.count("${")
        elif depth > 0 and isinstance(value, list | tuple):
            weight += _weight(value, depth - 1)
        elif depth > 0 and isinstance(value, Mapping):
            weight += _weight(value.values(), depth - 1)
    return weight


def _cron_lines(job: Job) -> int:
    return len(expressions(job.periodic)) if job.periodic is not None else 0


def _tasks(job: Job) -> list[Task]:
    return [task for group in job.task_groups for task in group.tasks]


def _operands(job: Job, tasks: Sequence[Task]) -> list[str]:
    """The operators of all constraints and affinities; "" for a spread."""
    owners: list[Job | TaskGroup | Task | RequestedDevice] = [job, *job.task_groups, *tasks]
    for task in tasks:
        for device in task.resources.devices:
            owners += (device, *device.first_available)
    spreads = len(job.spreads) + sum([len(group.spreads) for group in job.task_groups])
    return [
        *[constraint.operand for owner in owners for constraint in owner.constraints],
        *[affinity.operand for owner in owners for affinity in owner.affinities],
        *[""] * spreads,
    ]
