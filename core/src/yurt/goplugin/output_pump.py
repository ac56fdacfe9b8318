"""Copies the log files of a served driver to the FIFOs of a foreign host (Nomad).

Yurt's drivers write rotated files themselves. Under a foreign host these files lie in a folder of the plugin, are small
and few, and a pump copies the new data of each output to the host's FIFO. The position is stored next to the files, so
that a restarted plugin continues there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import termios
from collections.abc import Awaitable
from pathlib import Path

import msgspec

from yurt.runtime.background import Background
from yurt.sdk.driver import LogRotation
from yurt.sdk.value import Value

POLL_S = 0.1
FULL_POLL_S = 0.02
READ_BYTES = 64 * 1024
DRAIN_LIMIT_S = 5.0
READ_LIMIT_S = 2.0
"""The time limit for a host to read the data in a pipe; the pipe is then closed anyway."""
ROTATION = LogRotation(max_files=4, max_bytes=4 * 1024 * 1024)


class OutputPosition(Value, rename=None):
    """The position up to which an output was copied: file number and offset in bytes."""

    index: int = 0
    offset: int = 0


class OutputPump:
    """One output of one task."""

    def __init__(self, base: Path, fifo: str) -> None:
        self._base = base
        self._mark = base.with_name(f"{base.name}.carried")
        self._fifo = fifo
        self._fd = -1
        self._place = self._stored()
        self._lock = asyncio.Lock()

    def _stored(self) -> OutputPosition:
        try:
            return msgspec.json.decode(self._mark.read_bytes(), type=OutputPosition)
        except (OSError, msgspec.DecodeError):
            return OutputPosition()

    async def follow(self) -> None:
        """Copy output until cancelled."""
        while True:
            await self.carry()
            await _pause(POLL_S)

    async def drain(self) -> None:
        """Copy all available output, within a time limit for a host that does not read."""
        await _within(DRAIN_LIMIT_S, self.carry())

    async def carry(self) -> None:
        """Copy new output."""
        async with self._lock:
            while data := self._next():
                # Counted by what the pipe took, so that a cancelled task leaves nothing to be sent twice.
                written = await self._write(data)
                self._place = OutputPosition(index=self._place.index, offset=self._place.offset + written)
                with contextlib.suppress(OSError):
                    self._mark.write_bytes(msgspec.json.encode(self._place))

    def _next(self) -> bytes:
        """The next bytes to copy; continues with the next file at the end of one."""
        while True:
            data = read_at(self._file(self._place.index), self._place.offset)
            later = [index for index in self._indexes() if index > self._place.index]
            if data or not later:
                return data
            self._place = OutputPosition(index=min(later))

    def _file(self, index: int) -> Path:
        return self._base.with_name(f"{self._base.name}.{index}")

    def _indexes(self) -> list[int]:
        tails = (path.name.removeprefix(f"{self._base.name}.") for path in self._base.parent.glob("*.*"))
        return [int(tail) for tail in tails if tail.isdigit()]

    async def finish(self) -> None:
        """Copy the rest and close the pipe, so that its reader sees the end after the data.

        A reader that still waits for a writer is let in first, so a task without output ends at once too.
        """
        await self.drain()
        async with self._lock:
            await _within(READ_LIMIT_S, self._wait_read())
            self.close()

    async def _wait_read(self) -> None:
        while self._fd < 0:
            # Nothing was written. Opened before its reader, the pipe would be closed again before that begins to wait.
            self._fd = self._opened_for_reader()
            await _pause(FULL_POLL_S)
        while unread(self._fd):  # a pipe does not say when it has been read
            await _pause(FULL_POLL_S)

    def _opened_for_reader(self) -> int:
        """The pipe, opened for writing; -1 while no reader has opened it."""
        try:
            return os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return -1

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    async def _write(self, data: bytes) -> int:
        """Wait until the pipe accepts some of the data; returns the number of bytes."""
        self._open()
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                await _pause(FULL_POLL_S)

    def close(self) -> None:
        """Close the pipe."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _within(limit_s: float, work: Awaitable[None]) -> None:
    """Run work until it ends or its time limit passes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await work


def unread(fd: int) -> int:
    """The number of unread bytes in a pipe; 0 for a descriptor of any other kind."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def read_at(path: Path, offset: int) -> bytes:
    """A piece of a file; nothing when it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(READ_BYTES)
    except FileNotFoundError:
        return b""


class TaskOutput:
    """Both outputs of a task."""

    def __init__(self, folder: Path, task_id: str, task_name: str, fifos: tuple[str, str]) -> None:
        self.logs_dir = folder / hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
        self._following: list[asyncio.Task[None]] = []
        self._has_output = all(fifos) and any(fifo != os.devnull for fifo in fifos)
        self.logs_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = (f"{task_name}.stdout", f"{task_name}.stderr")
        pairs = zip(names, fifos, strict=True) if self._has_output else ()
        self._pumps = [OutputPump(self.logs_dir / name, fifo) for name, fifo in pairs]

    @property
    def rotation(self) -> LogRotation:
        """The log rotation that the driver uses."""
        return ROTATION if self._has_output else LogRotation(disabled=True)

    def start(self, background: Background) -> None:
        """Start copying."""
        self._following = [background.start("carry output", pump.follow) for pump in self._pumps]

    async def finish(self) -> None:
        """Copy all remaining output and close the pipes; idempotent."""
        following, self._following = self._following, []
        for task in following:
            task.cancel()
        for pump in tuple(self._pumps):
            with contextlib.suppress(OSError):
                await pump.finish()
            # Removed only now: if this caller is cancelled before, the next one finishes the same pump.
            if pump in self._pumps:
                self._pumps.remove(pump)

    def remove(self) -> None:
        """Stop copying and remove the files."""
        for task in self._following:
            task.cancel()
        for pump in self._pumps:
            pump.close()
        shutil.rmtree(self.logs_dir, ignore_errors=True)
