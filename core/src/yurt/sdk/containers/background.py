"""The work that a driver does between calls: named tasks with one owner, all ended by `close`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from yurt.sdk.errors import YurtError

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Owns the driver's tasks. The driver contract has no `run`, so they cannot live in a TaskGroup of the caller."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run something beside; an exception is logged and ends this work alone."""
        task = asyncio.get_running_loop().create_task(self._run(name, work), name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work()
        except YurtError as error:
            log.warning("%s driver: %s failed: %s", self.owner, name, error)
        except Exception:
            log.exception("%s driver: %s failed", self.owner, name)

    async def close(self) -> None:
        """End all work, and wait until it has ended."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
