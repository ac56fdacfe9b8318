"""One task's log, followed across failures of the server through which its node is reached.

A node is connected to one server at a time, mostly to one that does not answer the request. When that server ends, the
node connects to another one, and the log is read on from the last byte. An offset counts from the beginning of the
oldest file that there is, so it is made from a listing of the files. What the first frames repeat is left out. A file
that was rotated away meanwhile is missing, and one that was truncated is read from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace
from yurt.server.ports import NodePort
from yurt.structs.rpc import FILE_TRUNCATED, StreamFrame

RESUME_S: Final = 30.0
"""How long a node may be out of reach: clients wait 10 s at most between two attempts to connect."""
PAUSE_S: Final = 0.5
CHANGED: Final = "the files of the log have changed meanwhile"
LOG_FOLDER: Final = "alloc/logs"


class WantedLog(NamedTuple):
    """The log of one task, and where to begin in it."""

    alloc_id: str
    task: str
    kind: str
    offset: int
    origin: str


class LogPosition(NamedTuple):
    """The number of a file, and the offset in it of the first byte that has not been shown."""

    number: int
    offset: int


class FollowedLog:
    """A log that is read to its end."""

    def __init__(self, log: WantedLog, find: Callable[[], NodePort], env: Env) -> None:
        """`find` looks for the node after a failure; raises Unavailable while it is out of reach."""
        self._log = log
        self._find = find
        self._env = env
        self._position: LogPosition | None = None
        self._is_resumed = False
        """No new byte has come since the last failure."""

    async def frames(self, node: NodePort) -> AsyncGenerator[StreamFrame]:
        """The frames, and empty ones while the node is out of reach; raises the last failure after `RESUME_S`.

        A node that has sent nothing yet is not waited for.
        """
        has_begun = False
        failed_at_s: float | None = None
        while True:
            opened = self._opened(node)
            try:
                async for frame in opened:
                    has_begun, failed_at_s = True, None
                    yield frame
                return
            except Unavailable:
                now_s = self._env.monotonic()
                failed_at_s = now_s if failed_at_s is None else failed_at_s
                if not has_begun or now_s - failed_at_s > RESUME_S:
                    raise
                self._is_resumed = True
            finally:
                await opened.aclose()
            yield StreamFrame()
            await self._env.sleep(PAUSE_S)

    async def _opened(self, node: NodePort) -> AsyncGenerator[StreamFrame]:
        alloc_id, task, kind, offset, origin = self._log
        if self._is_resumed:
            node = self._find()
        if self._position is not None:
            number, reached = self._position
            sizes = await self._sizes(node)
            if sizes.get(number, reached) < reached:
                name = f"{LOG_FOLDER}/{task}.{kind}.{number}"
                yield StreamFrame(offset=reached, file=name, file_event=FILE_TRUNCATED)
                self._position = LogPosition(number, 0)
            offset, origin = _offset(sizes, self._position), "start"
        elif self._is_resumed and offset:
            offset, origin = 0, "start"  # the log was empty until now, so all of it is new
        frames = node.stream_logs(alloc_id, task, kind=kind, offset=offset, origin=origin, follow=True)
        async with aclosing(frames):
            async for frame in frames:
                unseen = self._unseen(frame) if frame.data else frame
                if frame.file_event == FILE_TRUNCATED:
                    self._position = LogPosition(_number(frame.file), 0)
                if unseen is not None:
                    yield unseen
        if self._is_resumed and self._position is not None:
            sizes = await self._sizes(node)
            if offset != _offset(sizes, self._position):
                raise Unavailable(CHANGED)

    async def _sizes(self, node: NodePort) -> dict[int, int]:
        """The sizes of the log's files by number."""
        entries = await node.list_files(self._log.alloc_id, LOG_FOLDER)
        pattern = re.compile(re.escape(f"{self._log.task}.{self._log.kind}.") + r"\d+")
        return {_number(entry.name): entry.size for entry in entries if pattern.fullmatch(entry.name)}

    def _unseen(self, frame: StreamFrame) -> StreamFrame | None:
        """The part of a frame that is new to the reader, or None; raises Unavailable if bytes before it are missing.

        The oldest file may be removed after the listing: then the offset was too large, also for a later file, and is
        made again.
        """
        begin, end = LogPosition(_number(frame.file), frame.offset), frame.offset + len(frame.data)
        shown, position = b"", self._position
        if self._is_resumed and position is not None:
            if begin.number < position.number or (begin.number == position.number and end <= position.offset):
                return None
            if begin.offset > (position.offset if begin.number == position.number else 0):
                raise Unavailable(CHANGED)
            if begin.number == position.number:
                shown = frame.data[: position.offset - begin.offset]
        self._is_resumed = False
        self._position = LogPosition(begin.number, end)
        return replace(frame, offset=frame.offset + len(shown), data=frame.data[len(shown) :]) if shown else frame


def _offset(sizes: Mapping[int, int], position: LogPosition) -> int:
    """The position as an offset from the beginning of the oldest file."""
    before = sum(size for number, size in sizes.items() if number < position.number)
    return before + (position.offset if position.number in sizes else 0)


def _number(name: str) -> int:
    """The number at the end of a log file's name; -1 for other names."""
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else -1
