"""Background work of a driver between calls: named tasks with one owner, all ended by `close`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from yurt.sdk.errors import YurtError

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]


class DriverTasks:
    """Runs the driver's background tasks. The driver contract has no `run`, so no caller's TaskGroup can own them."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run a coroutine in the background; an exception is logged and ends only this task."""
        task = asyncio.get_running_loop().create_task(self._run(name, work), name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def promise(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Run a coroutine with a result in the background; it continues when its caller stops waiting."""
        made: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        made.add_done_callback(lambda done: done.cancelled() or done.exception())

        async def run() -> None:
            try:
                made.set_result(await work())
            except YurtError as error:
                made.set_exception(error)
            finally:
                made.cancel()

        self.start(name, run)
        return made

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work()
        except YurtError as error:
            log.warning("driver work failed: driver=%s work=%s error=%s", self.owner, name, error)
        except Exception:
            log.exception("driver work failed: driver=%s work=%s", self.owner, name)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_set_within(event: asyncio.Event, limit_s: float) -> bool:
    """Wait, up to a time limit, until an event is set; returns whether it is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
    return event.is_set()
