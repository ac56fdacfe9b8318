"""The one place where a failing piece of work is caught: it is logged and its siblings live on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


def supervised(
    group: asyncio.TaskGroup,
    name: str,
    coroutine: Coroutine[Any, Any, None],
    *,
    on_error: Callable[[Exception], None] | None = None,
) -> asyncio.Task[None]:
    """Run work that may fail alone; an exception is logged and given to `on_error`, cancellation passes through."""

    async def run() -> None:
        try:
            await coroutine
        except Exception as error:
            log.exception("%s failed", name)
            if on_error is not None:
                on_error(error)

    task = group.create_task(run(), name=name)
    task.add_done_callback(lambda _: coroutine.close())  # cancelled before its first turn, it would never be awaited
    return task
