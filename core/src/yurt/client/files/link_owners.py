"""Decides for which owners the agent reads a hard-linked file of an allocation for users.

A second name (a hard link) can stand for any file of the file system that the allocation lies on, and the agent, which
often is root, could read it although the task cannot. By its name and place such a file is the task's, so its owner
decides:

- A task that sees the host's file system (a driver without isolation, such as raw_exec) can name only what it may reach
  anyway if the file belongs to the user it runs as. So files of several names must belong to the user of such a task of
  the allocation, or to the agent's where the job names none.
- A task that sees nothing but its own folders (chroot, image) cannot name a file of the host: link(2) does not cross
  mounts. Package managers and build tools link files inside of these folders, under whatever users an image has. So
  where all tasks are of this kind, the owner does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from yurt.client.files.safe_files import Owners
from yurt.client.files.users import ids_of
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.sdk.driver import Driver
    from yurt.structs.alloc import Allocation

NO_ISOLATION = "none"


class TaskUser(Value):
    """A task with its driver and its user ("": the agent's), which decide who may own its files."""

    name: str
    driver: str
    user: str = ""
    has_logs: bool = True
    """Its job lets its output be collected."""


def task_users(alloc: Allocation) -> tuple[TaskUser, ...]:
    """The tasks of an allocation."""
    groups = alloc.job.task_groups if alloc.job is not None else ()
    return tuple(
        TaskUser(name=task.name, driver=task.driver, user=task.user, has_logs=not task.log_config.disabled)
        for group in groups
        if group.name == alloc.task_group
        for task in group.tasks
    )


def link_owners(tasks: Collection[TaskUser], drivers: Mapping[str, Driver]) -> Owners:
    """The permitted owners of hard-linked files in an allocation of these tasks; None permits any. Blocking."""
    seeing = [task for task in tasks if _sees_host(task, drivers)]
    if tasks and not seeing:
        return None
    permitted = (task for task in seeing if not _is_dynamic(task, drivers))
    return frozenset(uid for task in permitted if (uid := _uid(task)) is not None)


def _is_dynamic(task: TaskUser, drivers: Mapping[str, Driver]) -> bool:
    """Whether the task runs as a dynamic user, who may own no such file: the agent's user is not the task's.

    Only an agent that is root gives such users; under another one the task runs as the agent's user.
    """
    if task.user or os.geteuid() != 0:
        return False
    try:
        driver = drivers.get(task.driver)
    except NotFound:
        driver = None
    return driver is not None and driver.capabilities.dynamic_users


def _sees_host(task: TaskUser, drivers: Mapping[str, Driver]) -> bool:
    """Whether the task sees the host's file system; an absent driver counts as one without isolation."""
    try:
        driver = drivers.get(task.driver)
    except NotFound:
        driver = None
    return driver is None or driver.capabilities.fs_isolation == NO_ISOLATION


def _uid(task: TaskUser) -> int | None:
    try:
        ids = ids_of(task.user)
    except Invalid:
        return None
    return ids[0] if ids is not None else os.geteuid()
