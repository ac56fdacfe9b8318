"""Waits that an event interrupts: the log is closed, or the term has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The wait was interrupted; the awaited operation may or may not have taken effect."""


class Interrupt:
    """An event that interrupts all present and future waits guarded by it.

    A server waits so for each entry of the log. A guarded wait therefore only records its task, and the event cancels
    that task as `asyncio.Timeout` does, but without a time-out object for each wait.
    """

    def __init__(self) -> None:
        self.is_raised = False
        self._tasks: dict[Awaitable[Any], asyncio.Task[Any]] = {}
        """The waits and their tasks, in the order in which they began."""

    def raise_(self) -> None:
        """Interrupt the waits; further calls have no effect."""
        if not self.is_raised and self._tasks:
            # Later, because the caller may itself be in a guarded wait that ends without another step.
            asyncio.get_running_loop().call_soon(self._cancel)
        self.is_raised = True

    def _cancel(self) -> None:
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()

    async def guard(self, wait: Coroutine[Any, Any, T]) -> T:
        """Wait and return the result; raises Interrupted, without starting the wait if the event came before."""
        if self.is_raised:
            wait.close()
            raise Interrupted
        task = asyncio.current_task()
        assert task is not None
        requests = task.cancelling()
        self._tasks[wait] = task
        try:
            result = await wait
        except BaseException as error:
            # A cancellation by the owner of the task, which may come at the same time, goes on.
            is_interrupted = self._tasks.pop(wait, None) is None and task.uncancel() <= requests
            if is_interrupted and isinstance(error, asyncio.CancelledError):
                raise Interrupted from None
            raise
        if self._tasks.pop(wait, None) is None:
            task.uncancel()
        return result
