"""Supervision: the only place that catches all exceptions; it logs or reports them, or restarts the work."""

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
) -> asyncio.Task[None]:
    """Run work that may fail alone; an exception is logged and given to `on_error`, cancellation passes through.

    An `on_error` that fails is logged too: the siblings of failed work live on whatever handles the failure.
    """

    async def run() -> None:
        try:
            await coroutine
        except Exception as error:
            log.exception("background work failed: name=%s", name)
            _handle(name, error, on_error)

    task = group.create_task(run(), name=name)
    task.add_done_callback(lambda _: coroutine.close())  # cancelled before its first turn, it would never be awaited
    return task


def _handle(name: str, error: Exception, on_error: Callable[[Exception], None] | None) -> None:
    try:
        if on_error is not None:
            on_error(error)
    except Exception:
        log.exception("handling of failed background work failed: name=%s", name)


class WorkCancelledError(Exception):
    """Work ended by a cancellation that was not meant for the task which awaits it."""


async def contained(work: Awaitable[T]) -> T:
    """The result of the work; a cancellation from within it is raised as WorkCancelledError, an ordinary failure.

    Code of a package may await a task of its own that is cancelled. Its CancelledError would end the task of the agent
    that called it, silently and as if the agent had cancelled that. A task that was cancelled itself counts that.
    """
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise WorkCancelledError("what it waited for was cancelled") from error


async def outcome_of(work: Awaitable[T]) -> T | Exception:
    """What the work comes to, or what it failed with: for one of several whose failure is not that of the others."""
    try:
        return await contained(work)
    except Exception as error:
        return error


def outcome_of_call(call: Callable[[], T]) -> T | Exception:
    """As `outcome_of`, for a call that does not wait."""
    try:
        return call()
    except Exception as error:
        return error


async def attempted(
    name: str, work: Awaitable[None], *, level: int = logging.ERROR, is_told: Callable[[], bool] = lambda: True
) -> bool:
    """Whether the work came to its end; what it failed with is logged, with its place when nobody foresaw it."""
    try:
        await work
    except Exception as error:
        if is_told():
            trace = None if isinstance(error, YurtError) else error
            log.log(level, "background work failed and starts again: name=%s error=%s", name, error, exc_info=trace)
        return False
    return True


async def keep_running(
    name: str,
    loop: Callable[[], Awaitable[None]],
    *,
    pause: Callable[[], Awaitable[None]],
    is_told: Callable[[], bool] = lambda: True,
) -> None:
    """Run a loop again after a pause whenever it ends or fails, until cancelled; `is_told` says whether to log it."""
    while True:
        await attempted(name, loop(), is_told=is_told)
        await pause()
