"""Refuses settings of a task that this version of the client does not support, instead of ignoring them."""

from __future__ import annotations

from collections.abc import Collection

from yurt.rules.no_effect import not_available, unregistered
from yurt.sdk.services import NOMAD
from yurt.structs.job import TaskGroup
from yurt.structs.task import Task


def unavailable(group: TaskGroup, task: Task) -> str:
    """The reason why the task cannot be prepared here, or ""."""
    asked = tuple(not_available(group, task))
    if not asked:
        return ""
    verb, them = ("is", "it") if len(asked) == 1 else ("are", "them")
    return f"{', '.join(asked)} {verb} not available in this version; remove {them} to run task {task.name!r}"


def notice(group: TaskGroup, task: Task, providers: Collection[str] = (NOMAD,)) -> str:
    """A notice about a service that is not registered, for its task or, of a group service, for the first task.

    `providers`: whose services this node registers.
    """
    is_first = group.tasks[0].name == task.name
    found = next(unregistered((*task.services, *(group.services if is_first else ())), providers), "")
    return f"{found[0].upper()}{found[1:]}; the task runs without it" if found else ""
