"""Background tasks of one owner, named in logs and all ended by `close`.

For objects whose interface has no `run`, so that their tasks cannot live in a TaskGroup of the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from yurt.sdk.errors import YurtError

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Runs and ends the background tasks of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run work in the background; an exception is logged and ends only this work."""
        task = asyncio.get_running_loop().create_task(self._run(name, work), name=f"{self._owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work()
        except YurtError as error:
            log.warning("background work failed: owner=%s work=%s error=%s", self._owner, name, error)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed: name=%s", task.get_name(), exc_info=task.exception())

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
