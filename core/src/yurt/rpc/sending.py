"""Outgoing frames: those posted while the loop is busy or the far end does not read are sent together."""

from __future__ import annotations

import asyncio
from collections import deque

from yurt.rpc import frames
from yurt.rpc.frames import FRAME_BYTES, GATHER_BYTES, Answer, AnyFrame, Ask, Item
from yurt.rpc.intake import Intake
from yurt.rpc.wire import Wire


class Sender:
    """The unsent frames of one end."""

    def __init__(self, wire: Wire, *, intake: Intake) -> None:
        """`intake` gets the number of waiting bytes: an end with unread answers is not read from."""
        self._wire = wire
        self._intake = intake
        self._frames: deque[AnyFrame] = deque()
        self._bytes = 0
        self._is_due = False
        self._is_paused = False
        self._is_closed = False

    def post(self, frame: AnyFrame) -> None:
        """Queue a frame for sending."""
        self._frames.append(frame)
        self._bytes += _size(frame)
        if self._is_paused:
            self._intake.set_unread(self._bytes)
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def pause(self) -> None:
        """The far end has stopped reading."""
        self._is_paused = True

    def resume(self) -> None:
        """The far end reads again."""
        self._is_paused = False
        self._flush()

    def close(self) -> None:
        """Stop writing."""
        self._is_closed = True

    def _flush(self) -> None:
        self._is_due = False
        if self._is_closed:
            return
        while self._frames and not self._is_paused:
            self._wire.write(frames.encode(self._gathered()))
        self._intake.set_unread(self._bytes)

    def _gathered(self) -> list[AnyFrame]:
        if self._bytes <= GATHER_BYTES:  # all of them, as nearly always
            gathered = [*self._frames]
            self._frames.clear()
            self._bytes = 0
            return gathered
        gathered = []
        size = 0
        while self._frames and size < GATHER_BYTES:
            frame = self._frames.popleft()
            size += _size(frame)
            gathered.append(frame)
        self._bytes -= size
        return gathered


def _size(frame: AnyFrame) -> int:
    match frame:
        case Ask(request=data) | Answer(answer=data) | Item(item=data):
            return len(data) + FRAME_BYTES
        case _:
            return FRAME_BYTES
