"""The tasks of an executor and their watches: a pidfd, or polling, until the exit file reports the end.

The file appears a moment after the process has gone; when the shim is gone too, the way the task ended is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from yurt.executor import process_identity
from yurt.executor.exec_session import ProcessSession
from yurt.executor.process_context import read_exit_file
from yurt.executor.spec import ProcessHandle, ProcessSpec
from yurt.runtime.env import Env
from yurt.sdk.driver import ExitResult
from yurt.sdk.errors import NotFound

POLL_S = 0.25
EXIT_FILE_FIRST_WAIT_S = 0.001
EXIT_FILE_LIMIT_S = 5.0


class WatchedTask:
    """A task of this executor: its handle, its result and its watch."""

    def __init__(self, handle: ProcessHandle, spec: ProcessSpec | None, loop: asyncio.AbstractEventLoop) -> None:
        self.handle = handle
        self.spec = spec
        self.ended: asyncio.Future[ExitResult] = loop.create_future()
        self.pidfd: int | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sessions: set[ProcessSession] = set()


class WatchedTasks:
    """Tasks by their ids."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._tasks: dict[str, WatchedTask] = {}

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._tasks

    def __iter__(self) -> Iterator[WatchedTask]:
        return iter(tuple(self._tasks.values()))

    def get(self, task_id: str) -> WatchedTask:
        """Raises NotFound."""
        try:
            return self._tasks[task_id]
        except KeyError:
            raise NotFound(f"no task {task_id} here") from None

    def remove(self, task: WatchedTask) -> None:
        """Forget a task and free its watch."""
        _unwatch(task)
        self._tasks.pop(task.handle.task_id, None)

    def add(self, task: WatchedTask) -> None:
        """Add a task and watch its main process."""
        handle, loop = task.handle, asyncio.get_running_loop()
        self._tasks[handle.task_id] = task
        task.pidfd = process_identity.open_process(handle.pid, handle.start_time)
        if task.pidfd is not None:
            loop.add_reader(task.pidfd, self._on_main_ended, task)
        else:
            self._poll(task)

    def _poll(self, task: WatchedTask) -> None:
        """Poll, without a pidfd."""
        if process_identity.is_alive(task.handle.pid, task.handle.start_time):
            task.timer = asyncio.get_running_loop().call_later(POLL_S, self._poll, task)
        else:
            self._on_main_ended(task)

    def _on_main_ended(self, task: WatchedTask) -> None:
        """The main process has ended: wait for its exit file."""
        _unwatch(task)
        self._read_exit(task, EXIT_FILE_FIRST_WAIT_S, 0.0)

    def _read_exit(self, task: WatchedTask, wait_s: float, waited_s: float) -> None:
        """Read the exit file; retry while it is missing and its writer lives."""
        if task.ended.done():
            return
        handle = task.handle
        is_shim_alive = process_identity.is_alive(handle.shim_pid, handle.shim_start_time)
        record = read_exit_file(handle.exit_file)
        if record is not None:
            task.ended.set_result(record)
        elif not is_shim_alive or waited_s > EXIT_FILE_LIMIT_S:
            lost = f"the exit status is lost: the task's shim (pid {handle.shim_pid}) ended without writing it"
            task.ended.set_result(ExitResult(error=lost, finished_at=self._env.now()))
        else:
            loop = asyncio.get_running_loop()
            task.timer = loop.call_later(wait_s, self._read_exit, task, wait_s * 2, waited_s + wait_s)


def _unwatch(task: WatchedTask) -> None:
    """Free the watch's resources."""
    if task.pidfd is not None:
        asyncio.get_running_loop().remove_reader(task.pidfd)
        os.close(task.pidfd)
        task.pidfd = None
    if task.timer is not None:
        task.timer.cancel()
        task.timer = None
