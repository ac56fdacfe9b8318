"""The named parts of a job that a fuzzy search finds, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yurt.structs.job import Job
from yurt.structs.task import Task

_OF_CONFIG: Final = {"image": "images", "command": "commands", "class": "classes"}
"""Driver options by which tasks are found."""
PARTS: Final = ("groups", "tasks", "services", *_OF_CONFIG.values())
"""The kinds of parts, as answers name them."""


def job_parts(job: Job) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(kind, name, scope) of each; the scope is namespace, job, group and task as far as the part lies in one."""
    of_job = (job.namespace, job.id)
    for group in job.task_groups:
        of_group = (*of_job, group.name)
        yield "groups", group.name, of_job
        yield from (("services", service.name, of_group) for service in group.services)
        for task in group.tasks:
            yield "tasks", task.name, of_group
            yield from _parts_of_task(task, (*of_group, task.name))


def _parts_of_task(task: Task, of_task: tuple[str, ...]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    yield from (("services", service.name, of_task) for service in task.services)
    for option, kind in _OF_CONFIG.items():
        value = task.config.get(option)
        if isinstance(value, str) and value:
            yield kind, value, of_task
