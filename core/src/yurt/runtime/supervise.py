"""Supervision: the only place that catches every Exception; it logs or reports it, or restarts the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from yurt.sdk.errors import YurtError

log = logging.getLogger(__name__)

T = TypeVar("T")


def supervised(
    group: asyncio.TaskGroup,
    name: str,
    coroutine: Coroutine[Any, Any, None],
    *,
    on_error: Callable[[Exception], None] | None = None,
    on_end: Callable[[asyncio.Task[None]], None] | None = None,
) -> asyncio.Task[None]:
    """Run work in a group so that its failure leaves the group alive; its exception is logged and given to `on_error`.

    Cancellation passes through. An exception in `on_error` is logged too. `on_end` is called when the task has ended.
    """

    async def run() -> None:
        try:
            await coroutine
        except Exception as error:
            log.exception("background work failed: name=%s", name)
            _handle(name, error, on_error)

    def ended(task: asyncio.Task[None]) -> None:
        coroutine.close()  # cancelled before its first turn, it would never be awaited
        if on_end is not None:
            on_end(task)

    task = group.create_task(run(), name=name)
    task.add_done_callback(ended)
    return task


def _handle(name: str, error: Exception, on_error: Callable[[Exception], None] | None) -> None:
    try:
        if on_error is not None:
            on_error(error)
    except Exception:
        log.exception("handling of failed background work failed: name=%s", name)


class WorkCancelledError(Exception):
    """Work ended by a cancellation that was not addressed to the task that awaits it."""


async def contained(work: Awaitable[T]) -> T:
    """The result of the work; a cancellation from within it is raised as WorkCancelledError, an ordinary failure.

    A plugin's code may await a task of its own that is cancelled. That CancelledError would silently end the agent's
    task that called the plugin, as if the agent had cancelled it. `Task.cancelling` tells the two apart.
    """
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise WorkCancelledError("a task that the work awaited was cancelled") from error


async def outcome_of(work: Awaitable[T]) -> T | Exception:
    """The result of the work, or its exception: for several independent works, of which each may fail alone."""
    try:
        return await contained(work)
    except Exception as error:
        return error


def outcome_of_call(call: Callable[[], T]) -> T | Exception:
    """Like `outcome_of`, for a call that does not wait."""
    try:
        return call()
    except Exception as error:
        return error


async def attempted(
    name: str, work: Awaitable[None], *, level: int = logging.ERROR, is_logged: Callable[[], bool] = lambda: True
) -> bool:
    """Whether the work succeeded; an exception is logged, with a traceback unless it is a YurtError."""
    try:
        await work
    except Exception as error:
        if is_logged():
            trace = None if isinstance(error, YurtError) else error
            log.log(level, "background work failed and starts again: name=%s error=%s", name, error, exc_info=trace)
        return False
    return True


async def keep_running(
    name: str,
    loop: Callable[[], Awaitable[None]],
    *,
    pause: Callable[[], Awaitable[None]],
    is_logged: Callable[[], bool] = lambda: True,
) -> None:
    """Run a loop again after a pause whenever it ends or fails, until cancelled; log failures while `is_logged()`."""
    while True:
        await attempted(name, loop(), is_logged=is_logged)
        await pause()
