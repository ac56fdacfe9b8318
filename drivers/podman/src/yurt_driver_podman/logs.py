"""Collects a container's output, from its monitor's file into `<logs_dir>/<task>.<stream>.N`.

Each container has a monitor (conmon) of its own, which writes a line `<time> <stream> F|P <text>` for each line of
output (P: without the end of the line), even while neither podman nor this agent runs. Reading that file on this
machine does not load the engine, and continues while the engine hangs. Because a user's engine may name any path, only
a plain file of the engine's user is read. The recorded position is the file's inode and an offset. When the file
reaches its limit, the monitor begins a new one under the same name; the old one is read to its end first.

States of a reader: following -container has ended, all read-> done.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import closing, suppress

from yurt.sdk.containers.logfiles import LogFiles, Position, PositionFile

from yurt_driver_podman.inotify import Notices

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 1024 * 1024
LOOK_EVERY_S = 2.0
DRAIN_S = 30.0
SOURCE = "source"
PARTS = 4


class LogReader:
    """Follows one container's file."""

    def __init__(
        self, path: str, owner: int, *, files: Callable[[], LogFiles], ledger_path: str, notices: Notices
    ) -> None:
        self._path = path
        self._owner = owner
        self._make_files = files
        self._ledger_path = ledger_path
        self._notices = notices
        self._ending = asyncio.Event()
        self._done = asyncio.Event()
        self._rest = b""

    async def run(self) -> None:
        """Read until the container has ended and its file is read."""
        try:
            with closing(PositionFile(self._ledger_path)) as ledger, closing(self._make_files()) as files:
                position = ledger.load()
                files.open(position.files)
                await self._follow(Sink(files, ledger, position))
        except (OSError, ValueError) as error:
            log.warning("podman driver: the output in %s is no longer collected: %s", self._path, error)
        finally:
            self._done.set()

    async def drained(self) -> None:
        """The container has ended: wait until all is read, up to a time limit."""
        self._ending.set()
        self._notices.wake(self._path)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._done.wait()

    async def _follow(self, sink: Sink) -> None:
        """Read each file with the name to its end."""
        source = self._open(sink.position)
        with self._notices.watch(self._path) as changed:
            while True:
                is_last = self._ending.is_set()
                source = await self._read_to_end(source, sink)
                if is_last:
                    break
                await change_or_time(changed)
        if source is not None:
            os.close(source)

    def _open(self, position: Position) -> int | None:
        """The file at the recorded position, or at its start when it was replaced; None while it is missing."""
        with suppress(FileNotFoundError):
            source = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            inode, place = position.reached.get(SOURCE, (0, 0))
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != self._owner:
                os.close(source)
                raise ValueError("it is not a plain file of the engine's user")
            same = found.st_ino == inode and place <= found.st_size
            os.lseek(source, place if same else 0, os.SEEK_SET)
            position.reached[SOURCE] = (found.st_ino, place if same else 0)
            return source
        return None

    async def _read_to_end(self, source: int | None, sink: Sink) -> int | None:
        """Read all available data, and continue with a new file when the monitor has rotated."""
        while True:
            if source is None:
                source = self._open(sink.position)
                if source is None:
                    return None
            while data := os.read(source, READ_BYTES):
                self._take(data, sink)
                await asyncio.sleep(0)
            if not self._has_new_file(source):
                return source
            while data := os.read(source, READ_BYTES):
                self._take(data, sink)
            os.close(source)
            self._rest, source = b"", None
            sink.position.reached.pop(SOURCE, None)

    def _has_new_file(self, source: int) -> bool:
        """Whether the name now refers to another file."""
        try:
            return os.stat(self._path).st_ino != os.fstat(source).st_ino
        except FileNotFoundError:
            return False

    def _take(self, data: bytes, sink: Sink) -> None:
        """Write the complete lines of the data, and keep the rest."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise ValueError("a line has no end")
        if lines:
            sink.write(lines)


async def change_or_time(changed: asyncio.Event) -> None:
    """Wait for a change notification, with periodic checks without one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S):
            await changed.wait()
    changed.clear()


class Sink:
    """The task's log files with the recorded position."""

    def __init__(self, files: LogFiles, ledger: PositionFile, position: Position) -> None:
        self.files = files
        self.ledger = ledger
        self.position = position

    def write(self, lines: list[bytes]) -> None:
        """Write lines' text to their streams, then record the position behind them."""
        texts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        for line in lines:
            _, stream, tag, text = (*line.split(b" ", PARTS - 1), b"", b"", b"")[:PARTS]
            parts_of_stream = texts["stderr" if stream == b"stderr" else "stdout"]
            parts_of_stream.append(text)
            if tag != b"P":
                parts_of_stream.append(b"\n")
        for name, parts in texts.items():
            if parts:
                self.files.write(name, b"".join(parts))
        inode, place = self.position.reached[SOURCE]
        self.position.reached[SOURCE] = (inode, place + sum(map(len, lines)) + len(lines))
        self.position.files = self.files.places
        self.ledger.store(self.position)
