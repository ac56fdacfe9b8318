"""The task API hook: gives each task a socket on which it reaches the API of its agent."""

from __future__ import annotations

from collections.abc import Callable

from yurt.client.context import ClientContext
from yurt.client.tasks.client_task import ClientTask
from yurt.lifecycle import events
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import TaskHookOf


class TaskApiHook(TaskHookOf[ClientTask]):
    """Opens the socket in the task's secrets directory, and closes it when the task has ended.

    A socket that cannot be made does not fail the task, since most tasks never use it: a task event says why.
    """

    name = "task_api"

    def __init__(self, context: ClientContext) -> None:
        self._env = context.env
        self._serve = context.task_api
        self._open: dict[tuple[str, str], Callable[[], None]] = {}

    async def prepare(self, task: ClientTask) -> None:
        """Open the socket; the task finds it by NOMAD_UNIX_ADDR."""
        if self._serve is None:
            return
        from yurt.client.files.task_socket import bind_socket

        self.finish(task)
        try:
            listening = await self._env.in_thread(bind_socket, task.dirs, user=task.spec.task.user)
        except (OSError, Invalid) as error:
            task.note(events.hook_message(f"The task has no API socket: {error}"))
            return
        self._open[task.key] = await self._serve(listening)

    async def recover(self, task: ClientTask) -> None:
        """Open a new socket at the path where the earlier agent had one."""
        await self.prepare(task)

    def finish(self, task: ClientTask) -> None:
        """Stop accepting connections."""
        close = self._open.pop(task.key, None)
        if close is not None:
            close()
