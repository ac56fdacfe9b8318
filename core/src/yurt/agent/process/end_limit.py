"""Ends the process when work that the agent's parts leave behind does not end.

The code of a package may suppress its cancellation or block a thread. The event loop waits for both without a bound
when it closes, and after it the interpreter waits for the threads of pools that a package made; only SIGKILL would end
the agent. The limit holds until the process has ended, however far it gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from yurt.runtime.supervise import contained

END_LIMIT_S: Final = 10.0
"""The longest wait for left work once all parts have stopped."""
LAST_WORDS_S: Final = 2.0
"""How long the last log line and the closing of files may take then: a blocked thread may hold their locks."""
NAMED_MAX: Final = 5
IDLE_WORKER: Final = "_worker"
"""The function in which a thread of `concurrent.futures` waits for work."""

log = logging.getLogger(__name__)


class EndLimit:
    """Exits the process `limit_s` seconds after `begin`, or `LAST_WORDS_S` later with code 1 when that hangs too.

    `before_exit` is called on a thread of its own before such an exit.
    """

    def __init__(self, before_exit: Callable[[], None], *, limit_s: float = END_LIMIT_S) -> None:
        self.failure = ""
        """The error that the process would print at its end."""
        self._before_exit = before_exit
        self._limit_s = limit_s
        self._thread: threading.Thread | None = None

    def begin(self, *, code: int, failure: str = "") -> None:
        """Begin to wait on a thread; `code` is the exit code. A later call has no effect."""
        if self._thread is None:
            self.failure = failure
            loop = asyncio.get_running_loop()
            with contextlib.suppress(RuntimeError, ValueError, OSError):  # without standard error
                # It needs no lock of the interpreter, which a call of a package may keep to itself.
                faulthandler.dump_traceback_later(self._limit_s + LAST_WORDS_S, exit=True)
            self._thread = threading.Thread(target=self._wait, args=(loop, code), name="end limit", daemon=True)
            self._thread.start()

    def _wait(self, loop: asyncio.AbstractEventLoop, code: int) -> None:
        threading.Event().wait(self._limit_s)
        try:
            log.error("the agent ends with work that does not end: limit_s=%g work=%s", self._limit_s, left_work(loop))
            self._before_exit()
            if self.failure:
                sys.stderr.write(f"==> {self.failure}\n")
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # stdout may be a pipe that nobody reads any more
            os._exit(code)


def left_work(loop: asyncio.AbstractEventLoop) -> str:
    """The names of a loop's unfinished tasks, and of the threads that the interpreter waits for."""
    names = [*sorted(map(_name, asyncio.all_tasks(loop))), *sorted(f"thread {name}" for name in _busy_threads())]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _busy_threads() -> list[str]:
    """The names of the threads that the interpreter waits for, without those of pools that have nothing to do."""
    frames = sys._current_frames()
    return [
        each.name
        for each in threading.enumerate()
        if not each.daemon
        and each is not threading.main_thread()
        and (each.ident not in frames or frames[each.ident].f_code.co_name != IDLE_WORKER)
    ]


def _name(task: asyncio.Task[Any]) -> str:
    """The name of a task, or of its function where it was given none."""
    if not task.get_name().startswith("Task-"):
        return task.get_name()
    work: Any = task.get_coro()
    while getattr(work, "__name__", "") == contained.__name__:
        work = work.cr_await
    return getattr(work, "__qualname__", task.get_name())
