"""The task API hook: gives each task a socket on which it reaches the API of its agent."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

from yurt.client.context import ClientContext
from yurt.client.tasks.client_task import ClientTask
from yurt.lifecycle import events
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import TaskHookOf

Bound: TypeAlias = socket.socket | OSError | Invalid
"""A bound socket, or the reason why a task has none."""


class TaskApiHook(TaskHookOf[ClientTask]):
    """Opens the socket in the task's secrets directory, and closes it when the task has ended.

    A socket that cannot be made does not fail the task, since most tasks never use it: a task event says why.
    """

    name = "task_api"

    def __init__(self, context: ClientContext) -> None:
        self._env = context.env
        self._serve = context.task_api
        self._open: dict[tuple[str, str], Callable[[], None]] = {}
        self._bound: dict[tuple[str, str], Bound] = {}
        """Sockets of tasks whose hooks are not called yet."""

    def bind(self, dirs: TaskDirs, user: str) -> Bound | None:
        """Make the socket of a task in its directories, for `keep`; None where tasks have none. Blocking.

        The preparation calls it in the thread that makes the directories: a thread of its own would delay each start.
        """
        if self._serve is None:
            return None
        from yurt.client.files.task_socket import bind_socket

        try:
            return bind_socket(dirs, user=user)
        except (OSError, Invalid) as error:
            return error

    def keep(self, task: ClientTask, bound: Bound | None) -> None:
        """Keep the socket for the next `prepare`."""
        self._drop(task)
        if bound is not None:
            self._bound[task.key] = bound

    async def prepare(self, task: ClientTask) -> None:
        """Serve the API at the socket; the task finds it by NOMAD_UNIX_ADDR."""
        if self._serve is None:
            return
        self._close(task)
        bound = self._bound.pop(task.key, None)
        if bound is None:
            bound = await self._env.in_thread(self.bind, task.dirs, task.spec.task.user)
        if isinstance(bound, socket.socket):
            self._open[task.key] = await self._serve(bound)
        else:
            task.note(events.hook_message(f"The task has no API socket: {bound}"))

    async def recover(self, task: ClientTask) -> None:
        """Open a new socket at the path where the earlier agent had one."""
        await self.prepare(task)

    def finish(self, task: ClientTask) -> None:
        """Stop accepting connections."""
        self._close(task)
        self._drop(task)

    def _close(self, task: ClientTask) -> None:
        close = self._open.pop(task.key, None)
        if close is not None:
            close()

    def _drop(self, task: ClientTask) -> None:
        close_bound(self._bound.pop(task.key, None))


def close_bound(bound: Bound | None) -> None:
    """Close a bound socket that nobody will serve."""
    if isinstance(bound, socket.socket):
        bound.close()
