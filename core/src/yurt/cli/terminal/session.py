"""An interactive session: the user's terminal joined by a websocket to a command in a task.

One loop waits for all sources at once (the socket, standard input, a change of the terminal's size) and nothing in it
blocks but writing to standard output: input and output never hold each other up. While the command has a terminal,
the user's own is raw, so that every key reaches the command; it is put back whatever happens.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from yurt.api.websocket import NORMAL, BrokenFrame
from yurt.cli.api.websocket import WebSocket
from yurt.cli.errors import CliError

READ_SIZE = 32 * 1024
UNSENT_MAX = 256 * 1024
KEEPALIVE_S = 10.0
GOODBYE_S = 2.0
OVER = b"."
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Manner(NamedTuple):
    """Options of a session."""

    has_input: bool
    is_terminal: bool
    is_raw: bool
    escape: bytes


class Escapes:
    """Finds `~.` at the start of a line in what the user types, and takes one `~` off `~~`."""

    def __init__(self, character: bytes) -> None:
        self._character = character
        self._is_line_start = True
        self._is_pending = False
        self.is_over = False

    def feed(self, data: bytes) -> bytes:
        """The bytes to send to the command."""
        if not self._character:
            return data
        sent = bytearray()
        for value in data:
            byte = bytes([value])
            if self._is_pending:
                self._is_pending = False
                if byte == OVER:
                    self.is_over = True
                    break
                sent += byte if byte == self._character else self._character + byte
            elif self._is_line_start and byte == self._character:
                self._is_pending = True
                continue
            else:
                sent += byte
            self._is_line_start = byte in (b"\r", b"\n")
        return bytes(sent)


def converse(socket: WebSocket, manner: Manner) -> int:
    """Run the session to its end; returns the command's exit code."""
    try:
        with _raw_terminal(manner.is_raw), _resize_signals() as resized:
            session = _Session(socket, manner)
            code = session.run(resized)
        if session.is_left:
            print("Left the session; the command was ended.", file=sys.stderr)
        elif code is None:
            raise CliError(_why_lost(socket))
        return 1 if code is None else code
    except BrokenFrame as error:
        raise CliError(f"The agent sent what cannot be understood: {error}") from None
    finally:
        socket.close()


class _Session:
    """The state of one session."""

    def __init__(self, socket: WebSocket, manner: Manner) -> None:
        self._socket = socket
        self._manner = manner
        self._escapes = Escapes(manner.escape)
        self._reads_input = manner.has_input
        self._code: int | None = None
        self.is_left = False
        if manner.is_terminal:
            self._send_size()
        if not manner.has_input:
            self._send({"stdin": {"close": True}})

    def run(self, resized: int) -> int | None:
        """Forward data in both directions; None when there is no exit code."""
        socket, stdin = self._socket, sys.stdin.fileno() if self._reads_input else -1
        alive_at = time.monotonic()
        while not self.is_left:
            sources = [socket.fileno(), resized]
            if self._reads_input and socket.unsent < UNSENT_MAX:
                sources.append(stdin)
            limit_s = 0.0 if socket.has_more else KEEPALIVE_S
            readable, _, _ = select.select(sources, [socket.fileno()] if socket.unsent else [], [], limit_s)
            socket.flush()
            if resized in readable:
                os.read(resized, READ_SIZE)
                self._send_size()
            if stdin in readable:
                self._on_input(os.read(stdin, READ_SIZE))
            if (socket.fileno() in readable or socket.has_more) and not self._on_socket():
                break
            if time.monotonic() - alive_at > KEEPALIVE_S:
                alive_at = time.monotonic()
                self._send({})
        self._say_goodbye()
        return self._code

    def _on_input(self, data: bytes) -> None:
        if not data:
            self._reads_input = False
            self._send({"stdin": {"close": True}})
            return
        typed = self._escapes.feed(data)
        if typed:
            self._send({"stdin": {"data": base64.b64encode(typed).decode()}})
        self.is_left = self._escapes.is_over

    def _on_socket(self) -> bool:
        """Print the received output; False when the stream has ended."""
        texts = self._socket.receive()
        for text in texts or ():
            frame = json.loads(text)
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
                data = base64.b64decode((frame.get(name) or {}).get("data") or "")
                if data:
                    stream.buffer.write(data)
                    stream.buffer.flush()
            if frame.get("exited"):
                self._code = int((frame.get("result") or {}).get("exit_code") or 0)
        return texts is not None and self._code is None

    def _send_size(self) -> None:
        try:
            columns, rows = os.get_terminal_size(sys.stdin.fileno())
        except OSError:
            return
        self._send({"tty_size": {"height": rows, "width": columns}})

    def _send(self, frame: dict[str, object]) -> None:
        self._socket.send(json.dumps(frame))

    def _say_goodbye(self) -> None:
        """Close the websocket with a close frame, so that the agent need not wait."""
        self._socket.close_with(NORMAL)
        limit = time.monotonic() + GOODBYE_S
        while self._socket.unsent and time.monotonic() < limit:
            select.select([], [self._socket.fileno()], [], GOODBYE_S)
            self._socket.flush()


def _why_lost(socket: WebSocket) -> str:
    if socket.close_reason:
        return f"The session ended: {socket.close_reason}"
    return "The connection to the agent was lost before the command ended; the agent ends the command"


@contextmanager
def _raw_terminal(is_raw: bool) -> Iterator[None]:
    """Put the terminal into raw mode; restore it afterwards, also when a signal ends the process."""
    if not is_raw:
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _leave) for number in ENDING_SIGNALS}
    try:
        tty.setraw(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _resize_signals() -> Iterator[int]:
    """A descriptor that becomes readable when the terminal is resized."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    def on_resize(_number: int, _frame: FrameType | None) -> None:
        try:
            os.write(theirs, b"w")
        except BlockingIOError:
            return

    before = signal.signal(signal.SIGWINCH, on_resize)
    try:
        yield ours
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(ours)
        os.close(theirs)
