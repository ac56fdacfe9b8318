"""Ends the process when work that the agent's parts leave behind does not end.

The code of a package may suppress its cancellation or block a thread. The event loop waits for both without a bound
when it closes, and only SIGKILL would end the agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from yurt.runtime.supervise import contained

END_LIMIT_S: Final = 10.0
"""The longest wait for left work once all parts have stopped."""
NAMED_MAX: Final = 5

log = logging.getLogger(__name__)


class EndLimit:
    """Exits the process `limit_s` seconds after `begin`, unless `lift` comes before.

    `before_exit` is called on a thread of its own before such an exit.
    """

    def __init__(self, before_exit: Callable[[], None], *, limit_s: float = END_LIMIT_S) -> None:
        self._before_exit = before_exit
        self._limit_s = limit_s
        self._lifted = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, *, code: int) -> None:
        """Begin to wait on a thread; `code` is the exit code. A later call has no effect."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._wait, args=(loop, code), name="end limit", daemon=True)
            self._thread.start()

    def lift(self) -> None:
        """Let the process go on."""
        self._lifted.set()

    def _wait(self, loop: asyncio.AbstractEventLoop, code: int) -> None:
        if self._lifted.wait(self._limit_s):
            return
        try:
            log.error("the agent ends with work that does not end: limit_s=%g work=%s", self._limit_s, left_work(loop))
            self._before_exit()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # stdout may be a pipe that nobody reads any more
            os._exit(code)


def left_work(loop: asyncio.AbstractEventLoop) -> str:
    """The names of unfinished tasks of a loop. A blocked thread is visible as the loop's wait for its threads."""
    names = sorted(map(_name, asyncio.all_tasks(loop)))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _name(task: asyncio.Task[Any]) -> str:
    """The name of a task, or of its function where it was given none."""
    if not task.get_name().startswith("Task-"):
        return task.get_name()
    work: Any = task.get_coro()
    while getattr(work, "__name__", "") == contained.__name__:
        work = work.cr_await
    return getattr(work, "__qualname__", task.get_name())
