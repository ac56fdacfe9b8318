"""Streams a file, or a task's log over its rotated files, as frames of at most 64 KiB.

While nothing is written, an empty frame is sent each second. A followed file that shrinks, also one of a log, gives
"file truncated" and is read from its beginning; a deleted one gives "file deleted", which ends the stream. A log
continues with the next file once the current one is read to its end and a newer one exists; it ends when the task has
ended and all is read.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from yurt.client.files.browse import CHUNK_BYTES, list_files, open_file
from yurt.client.files.safe_files import Owners
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid, NotFound
from yurt.structs.rpc import FILE_DELETED, FILE_TRUNCATED, StreamFrame

POLL_S = 0.1
HEARTBEAT_S = 1.0
ORIGINS = ("start", "end")
LOG_KINDS = ("stdout", "stderr")


class StreamRoot(msgspec.Struct, frozen=True):
    """The root that a stream may not leave, its clock, and the permitted owners of hard-linked files."""

    root: str
    env: Env
    owners: Owners = None


async def stream_file(
    source: StreamRoot, path: str, *, offset: int, origin: str, follow: bool
) -> AsyncGenerator[StreamFrame]:
    """Frames of one file."""
    _check(offset, origin)
    descriptor = await asyncio.to_thread(open_file, source.root, path, source.owners)
    try:
        size = os.fstat(descriptor).st_size
        position = max(size - offset, 0) if origin == "end" else offset
        async for frame in _frames(source, path, descriptor, position=position, follow=follow):
            yield frame
    finally:
        os.close(descriptor)


async def _frames(
    source: StreamRoot, path: str, descriptor: int, *, position: int, follow: bool
) -> AsyncIterator[StreamFrame]:
    name = path.strip("/")
    silence = _Silence(source.env)
    while True:
        data = await asyncio.to_thread(os.pread, descriptor, CHUNK_BYTES, position)
        if data:
            yield StreamFrame(offset=position, data=data, file=name)
            position += len(data)
            silence.end()
            continue
        if not follow:
            return
        event = await asyncio.to_thread(_what_happened, source, path, descriptor, position)
        if event:
            yield StreamFrame(offset=position, file=name, file_event=event)
            position = 0
        if event == FILE_DELETED:
            return
        if not event:
            await source.env.sleep(POLL_S)
        if silence.is_due():
            yield StreamFrame()


class _Silence:
    """Decides when a heartbeat frame is due."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._since = env.monotonic()

    def end(self) -> None:
        """Note that a frame was sent."""
        self._since = self._env.monotonic()

    def is_due(self) -> bool:
        """Whether a second has passed since the last frame."""
        if self._env.monotonic() - self._since < HEARTBEAT_S:
            return False
        self.end()
        return True


def _what_happened(source: StreamRoot, path: str, descriptor: int, position: int) -> str:
    """The event of a followed file: deleted, truncated, or none."""
    here = os.fstat(descriptor)
    if here.st_size < position:
        return FILE_TRUNCATED
    try:
        other = open_file(source.root, path, source.owners)
    except (NotFound, Invalid):
        return FILE_DELETED
    try:
        there = os.fstat(other)
    finally:
        os.close(other)
    return "" if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev) else FILE_DELETED


def _check(offset: int, origin: str) -> None:
    if origin not in ORIGINS:
        raise Invalid(f"invalid origin {origin!r}; use start or end")
    if offset < 0:
        raise Invalid("offset cannot be negative")


class LogFile(NamedTuple):
    """One of the rotated files of a log."""

    number: int
    name: str
    size: int


class LogSelection(msgspec.Struct, frozen=True):
    """The selected log: task, stdout or stderr, whether it is complete, and whether the job lets it be collected."""

    task: str
    kind: str
    is_over: Callable[[], bool]
    is_collected: bool = True


class LogPlace(NamedTuple):
    """A position in a log: the number of the file and the offset in it."""

    number: int
    offset: int


async def log_files(root: str, log: LogSelection) -> list[LogFile]:
    """The files of a task's log, oldest first."""
    pattern = re.compile(re.escape(f"{log.task}.{log.kind}.") + r"(\d+)")
    entries = await list_files(root, "alloc/logs")
    found = [
        LogFile(int(match.group(1)), f"alloc/logs/{entry.name}", entry.size)
        for entry in entries
        if (match := pattern.fullmatch(entry.name))
    ]
    return sorted(found)


def place_at(files: list[LogFile], offset: int, origin: str) -> LogPlace:
    """The position `offset` bytes from the start or the end of the whole log.

    No byte from the end is the beginning of the newest file, as in Nomad: `alloc logs -f` begins there.
    """
    if origin == "end" and not offset:
        return LogPlace(files[-1].number, 0)
    if origin == "end":
        total = sum(file.size for file in files)
        offset = max(total - offset, 0)
    for file in files[:-1]:
        if offset < file.size:
            return LogPlace(file.number, offset)
        offset -= file.size
    last = files[-1]
    return LogPlace(last.number, offset if origin == "end" else min(offset, last.size))


async def stream_logs(
    source: StreamRoot, log: LogSelection, *, offset: int, origin: str, follow: bool
) -> AsyncGenerator[StreamFrame]:
    """Frames of a task's log over all its files."""
    _check(offset, origin)
    if log.kind not in LOG_KINDS:
        raise Invalid(f"invalid log type {log.kind!r}; use stdout or stderr")
    files = await log_files(source.root, log)
    silence = _Silence(source.env)
    while not files:
        if not log.is_collected:
            raise NotFound(f'task "{log.task}" has no logs: its logs block says disabled = true')
        if not follow or log.is_over():
            raise NotFound(f'task "{log.task}" not started yet. No logs available')
        await source.env.sleep(POLL_S)
        if silence.is_due():
            yield StreamFrame()
        files = await log_files(source.root, log)
    place: LogPlace | None = place_at(files, offset, origin)
    while place is not None:
        was_over = log.is_over()
        at = place
        async for frame in _rest_of(source, log, at):
            silence.end()
            yield frame
            at = LogPlace(at.number, frame.offset + len(frame.data))
        place = await _following(source, log, at)
        if place is not None and place < at:  # the file was truncated: only a reader that follows begins again
            if not follow:
                return
            silence.end()
            yield StreamFrame(offset=at.offset, file=_log_name(log, at.number), file_event=FILE_TRUNCATED)
        if place == at:
            if not follow or was_over:
                return
            await source.env.sleep(POLL_S)
            if silence.is_due():
                yield StreamFrame()


def _log_name(log: LogSelection, number: int) -> str:
    return f"alloc/logs/{log.task}.{log.kind}.{number}"


async def _rest_of(source: StreamRoot, log: LogSelection, place: LogPlace) -> AsyncIterator[StreamFrame]:
    """The frames of one file after a position; none when rotation has removed it."""
    name = _log_name(log, place.number)
    try:
        descriptor = await asyncio.to_thread(open_file, source.root, name, source.owners)
    except NotFound:
        return
    try:
        position = place.offset
        while data := await asyncio.to_thread(os.pread, descriptor, CHUNK_BYTES, position):
            yield StreamFrame(offset=position, data=data, file=name)
            position += len(data)
    finally:
        os.close(descriptor)


async def _following(source: StreamRoot, log: LogSelection, place: LogPlace) -> LogPlace | None:
    """The next position: the same one, the beginning of a truncated file, the next file, or None when all are gone."""
    try:
        files = await log_files(source.root, log)
    except NotFound:
        return None
    here = next((file for file in files if file.number == place.number), None)
    newer = next((file for file in files if file.number > place.number), None)
    if here is not None and here.size < place.offset:
        return LogPlace(place.number, 0)
    if newer is None:
        return place if here is not None else None
    if here is not None and here.size > place.offset:
        return place
    return LogPlace(newer.number, 0)
