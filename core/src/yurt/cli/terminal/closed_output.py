"""Standard output whose reader has gone, as in `yurt alloc logs -f ID | head -1`: the command ends quietly.

Python reports a closed pipe as BrokenPipeError at the next write, or with a message at its end, when it flushes. A
stream that is silent meanwhile writes nothing, so while a command follows one, a thread waits for the reader's end. It
sends SIGPIPE, as the kernel does at a write: that interrupts the main thread also while it waits for the agent.
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
"""What a shell shows for a program that SIGPIPE ended."""
_CLOSED: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def is_output_closed() -> bool:
    """Whether nobody reads standard output or standard error any more."""
    return any(_is_closed(number) for number in _outputs())


def silence_closed_output() -> None:
    """Discard what is still to be written where nobody reads: Python would complain at its end."""
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
    """End what happens inside with OutputClosed once the reader of standard output has gone."""
    number = _pipe()
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, _on_closed)
    done, over = os.pipe()
    thread = threading.Thread(target=_wait_for_reader, args=(number, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.close(over)
        thread.join()
        os.close(done)


def _pipe() -> int | None:
    """Standard output, if it is a pipe or a socket: the reader of another kind never goes away."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def _on_closed(*_: Any) -> None:
    # A write to a connection that the agent closed sends SIGPIPE as well; that one reports an error of its own.
    if is_output_closed():
        raise OutputClosed


def _wait_for_reader(number: int, done: int) -> None:
    """Send SIGPIPE when the reader of an output has gone; end when `done` is closed at its other end."""
    poller = select.poll()
    poller.register(number, 0)
    poller.register(done, select.POLLIN)
    ready = {found for found, _ in poller.poll()}
    if done not in ready:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)
