"""The tasks of one connection: served calls and sent inputs. They fail individually and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from yurt.runtime.supervise import supervised


def _ignore() -> None:
    """Nothing is to be done at the end of a task."""


class ConnectionTasks:
    """Tasks in the group of the connection's `run`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._runs = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def run_in(self, group: asyncio.TaskGroup) -> None:
        """Allow tasks to be started in this group."""
        self._group = group
        self._runs.set()

    async def wait_running(self) -> None:
        """Return when tasks may be started."""
        await self._runs.wait()

    def start(
        self,
        name: str,
        work: Coroutine[Any, Any, None],
        *,
        on_error: Callable[[Exception], None] | None = None,
        on_end: Callable[[], None] = _ignore,
    ) -> asyncio.Task[None]:
        """Start a task; `on_error` is called with its exception, `on_end` when it has ended."""
        assert self._group is not None

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            on_end()

        # One callback for all: the loop runs each by itself, for each served call.
        task = supervised(self._group, name, work, on_error=on_error, on_end=ended)
        self._tasks.add(task)
        return task

    def cancel(self) -> None:
        """The connection has ended: cancel the tasks."""
        for task in self._tasks:
            task.cancel()
