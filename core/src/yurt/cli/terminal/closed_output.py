"""Standard output whose reader has gone, as in `yurt alloc logs -f ID | head -1`: the command ends quietly.

Python reports a closed pipe as BrokenPipeError at the next write, or with a message when it flushes at its exit. A
command that follows a silent stream writes nothing, so a thread waits until the reader has gone. It sends SIGPIPE, as
the kernel does at a write: that also interrupts a main thread that waits for the agent.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from yurt.cli.errors import OutputClosed

EXIT_CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""The exit code that a shell reports for a program ended by SIGPIPE."""
_CLOSED: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def is_output_closed() -> bool:
    """Whether the reader of standard output or of standard error has gone."""
    return any(_is_closed(number) for number in _outputs())


def silence_closed_output() -> None:
    """Discard the buffered text of outputs without a reader: Python would print a message about it at its exit."""
    for number in _outputs():
        if _is_closed(number):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def _outputs() -> list[int]:
    numbers = []
    for stream in (sys.stdout, sys.stderr):
        try:
            numbers.append(stream.fileno())
        except (AttributeError, OSError, ValueError):  # none, closed, or kept in memory
            continue
    return numbers


def _is_closed(number: int) -> bool:
    poller = select.poll()
    poller.register(number, 0)
    return any(events & _CLOSED for _, events in poller.poll(0))


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """Raise OutputClosed inside the block once the reader of standard output has gone."""
    number = _pipe()
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, _on_closed)
    ended, end = os.pipe()
    thread = threading.Thread(target=_wait_for_reader, args=(number, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.close(end)
        thread.join()
        os.close(ended)


def _pipe() -> int | None:
    """The descriptor of standard output if that is a pipe or a socket: only these lose their reader."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def _on_closed(*_: Any) -> None:
    # A write to a connection that the agent closed sends SIGPIPE too; that write raises an error itself.
    if is_output_closed():
        raise OutputClosed


def _wait_for_reader(number: int, ended: int) -> None:
    """Send SIGPIPE when the reader of an output has gone; end when the other end of the pipe `ended` is closed."""
    poller = select.poll()
    poller.register(number, 0)
    poller.register(ended, select.POLLIN)
    ready = {found for found, _ in poller.poll()}
    if ended not in ready:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)
