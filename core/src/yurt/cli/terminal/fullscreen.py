"""A terminal as one picture: the alternate screen, no cursor, single keys. Everything is put back at the end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final, TextIO

ENTER: Final = "\033[?1049h\033[?25l"
LEAVE: Final = "\033[?25h\033[?1049l"
HOME: Final = "\033[H"
CLEAR_LINE: Final = "\033[K"
CLEAR_BELOW: Final = "\033[J"
KEYS: Final = {
    "\033[A": "up",
    "\033[B": "down",
    "\033[5~": "pageup",
    "\033[6~": "pagedown",
    "\033OA": "up",
    "\033OB": "down",
}
KEY_BYTES_MAX: Final = 16
ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class FullScreen:
    """Draws pictures and reads keys."""

    def __init__(self, stream: TextIO, fd: int) -> None:
        self._stream = stream
        self._fd = fd
        self._waiting = ""

    def draw(self, lines: Iterable[str]) -> None:
        """Replace the picture; a line is as long as the terminal is wide, at most."""
        text = f"{CLEAR_LINE}\r\n".join(lines)
        self._stream.write(f"{HOME}{text}{CLEAR_LINE}{CLEAR_BELOW}")
        self._stream.flush()

    def key(self, limit_s: float) -> str:
        """The next key, by its name or character; "" when none came in time, or the terminal changed its size."""
        if not self._waiting:
            with contextlib.suppress(InterruptedError):
                ready, _, _ = select.select([self._fd], [], [], limit_s)
                if not ready:
                    return ""
                read = os.read(self._fd, KEY_BYTES_MAX)
                self._waiting = read.decode(errors="ignore") or "q"  # the terminal is gone
        for sequence, name in KEYS.items():
            if self._waiting.startswith(sequence):
                self._waiting = self._waiting[len(sequence) :]
                return name
        if self._waiting.startswith("\033["):  # another key with a sequence: nothing
            self._waiting = ""
            return ""
        key, self._waiting = self._waiting[:1], self._waiting[1:]
        return key


@contextlib.contextmanager
def full_screen(stream: TextIO) -> Iterator[FullScreen]:
    """The terminal of standard input as a picture; put back also when a signal or an error ends the command."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _leave) for number in ENDING_SIGNALS}
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        stream.write(ENTER)
        yield FullScreen(stream, fd)
    finally:
        stream.write(LEAVE)
        stream.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
