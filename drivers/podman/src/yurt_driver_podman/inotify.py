"""File change notifications by Linux's inotify: one descriptor for all, and no timer that wakes an idle agent."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
MASK = IN_MODIFY | IN_MOVED_TO | IN_CREATE
EVENT = Struct("iIII")
READ_BYTES = 64 * 1024


class Notices:
    """Events for paths. Without inotify, waiters poll."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._by_watch: dict[int, set[asyncio.Event]] = {}
        self._by_path: dict[str, asyncio.Event] = {}

    def _begin(self) -> None:
        """Open the descriptor at first use."""
        if self._fd >= 0:
            return
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    @contextmanager
    def watch(self, path: str) -> Iterator[asyncio.Event]:
        """An event that is set after each change of a file, or of its folder's entries."""
        self._begin()
        changed = self._by_path[path] = asyncio.Event()
        folder = os.fsencode(os.path.dirname(path))
        number: int = self._libc.inotify_add_watch(self._fd, folder, MASK) if self._fd >= 0 else -1
        if number >= 0:
            self._by_watch.setdefault(number, set()).add(changed)
        try:
            yield changed
        finally:
            del self._by_path[path]
            self._drop(number, changed)

    def wake(self, path: str) -> None:
        """Set the event of a path's watchers."""
        if path in self._by_path:
            self._by_path[path].set()

    def _drop(self, number: int, changed: asyncio.Event) -> None:
        """Remove a watcher; the last one removes the watch."""
        watchers = self._by_watch.get(number, set())
        watchers.discard(changed)
        if number in self._by_watch and not watchers:
            del self._by_watch[number]
            if self._fd >= 0:
                self._libc.inotify_rm_watch(self._fd, number)

    def _read(self) -> None:
        """Read the pending notifications."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            number, _, _, length = EVENT.unpack_from(data, place)
            place += EVENT.size + length
            for changed in self._by_watch.get(number, ()):
                changed.set()

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
