"""Reads and writes the descriptors of pipes and terminals on the event loop, with back pressure.

Nothing is read ahead: a command whose output is not consumed is blocked by its own full pipe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping

from yurt.sdk.exec import ExecOutput

READ_SIZE = 32 * 1024
LAST_WORDS_S = 0.2
"""The time in which output may arrive after the command's end, from other processes with its pipe open."""


class Outputs:
    """Output of non-blocking descriptors until their ends, or shortly after `ended` is done."""

    def __init__(self, fds: Mapping[int, str], ended: asyncio.Future[int]) -> None:
        self._open = dict(fds)
        self._ended = ended
        self._wake: asyncio.Future[None] | None = None

    async def pieces(self) -> AsyncIterator[ExecOutput]:
        """The pieces as they arrive."""
        while self._open:
            has_read = False
            for fd, stream in tuple(self._open.items()):
                data = read_now(fd) if fd in self._open else None
                if data:
                    has_read = True
                    yield ExecOutput(data=data, stream=stream)
                elif data is not None:
                    self._open.pop(fd, None)
            if not has_read and self._open and not await self._has_more():
                return

    async def _has_more(self) -> bool:
        """Wait until data is available; false when the command has ended and no data will come."""
        loop = asyncio.get_running_loop()
        wake = self._wake = loop.create_future()
        fds = tuple(self._open)
        was_over = self._ended.done()
        for fd in fds:
            loop.add_reader(fd, settle, wake)
        try:
            waiting: set[asyncio.Future[object]] = {wake} if was_over else {wake, self._ended}  # type: ignore[arg-type]
            limit_s = LAST_WORDS_S if was_over else None
            done, _ = await asyncio.wait(waiting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for fd in fds:
                if fd in self._open:  # one that is not may be closed, and its number another's
                    loop.remove_reader(fd)
            self._wake = None
        return bool(done) and bool(self._open)

    def stop(self) -> None:
        """Stop watching the descriptors, which may then be closed; readers see the end of the output."""
        loop = asyncio.get_running_loop()
        for fd in self._open:
            loop.remove_reader(fd)
        self._open.clear()
        if self._wake is not None:
            settle(self._wake)


def read_now(fd: int) -> bytes | None:
    """Data available now; empty at the end, None when nothing is available."""
    try:
        return os.read(fd, READ_SIZE)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class Input:
    """Writes to a non-blocking descriptor as its reader consumes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_over = False
        self._turn = asyncio.Lock()
        self._wake: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write all data, or as much as the reader consumes before it closes."""
        async with self._turn:
            rest = memoryview(data)
            while rest and not self._is_over:
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    self._is_over = True

    async def finish(self) -> None:
        """Wait until earlier writes are consumed."""
        async with self._turn:
            self._is_over = True

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        loop.add_writer(self._fd, settle, self._wake)
        try:
            await self._wake
        finally:
            self._wake = None
            if not self._is_over:
                loop.remove_writer(self._fd)

    def stop(self) -> None:
        """Stop watching the descriptor, which may then be closed."""
        self._is_over = True
        if self._wake is not None:
            asyncio.get_running_loop().remove_writer(self._fd)
            settle(self._wake)


def settle(future: asyncio.Future[None]) -> None:
    """End a wait."""
    if not future.done():
        future.set_result(None)
