"""Pins disk images for an emulator until it has opened them.

QEMU opens its drives while it starts, each once, as `config.block_node` describes them. After that it needs no paths,
so the pins are released as soon as the emulator has every pinned file open, or has ended. If a program runs QEMU as its
child, the opened files are not visible, and the pins stay until the program ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.pinned_paths import PinnedPaths

FIRST_LOOK_S, LONGEST_LOOK_S = 0.01, 1.0
CLOSE_LIMIT_S = 2.0
FileId = tuple[int, int]


class PinnedImages:
    """The images of one start. With `is_on` unset QEMU gets plain paths, and nothing is pinned."""

    def __init__(self, places: PinnedPaths, *, is_on: bool) -> None:
        self.is_on = is_on
        self._places = places
        self._group = places.new_group()
        self._files: set[FileId] = set()
        self._count = 0

    def take(self, descriptor: int) -> str:
        """Pin an open descriptor, which the caller keeps; returns the path. Blocking; raises OSError."""
        place = self._places.mount(os.dup(descriptor), self._group, self._count)
        self._count += 1
        self._files.add(file_id(os.fstat(descriptor)))
        return place

    @property
    def drop_command(self) -> tuple[str, ...]:
        """The command that releases the pins; empty for none."""
        return self._places.drop_command(self._group) if self._files else ()

    async def release_when_open(self, pid: int, has_ended_within: Callable[[float], Awaitable[bool]]) -> None:
        """Release the pins once a process has opened all files, or the task has ended (polled with a time-out)."""
        wait_s = FIRST_LOOK_S
        try:
            while not await asyncio.to_thread(has_open, pid, self._files) and not await has_ended_within(wait_s):
                wait_s = min(wait_s * 2, LONGEST_LOOK_S)
        finally:
            await asyncio.to_thread(self.release)

    def release(self) -> None:
        """Release the pins. Blocking."""
        self._places.drop(self._group)


def file_id(found: os.stat_result) -> FileId:
    """The file's identity."""
    return found.st_dev, found.st_ino


def has_open(pid: int, files: set[FileId]) -> bool:
    """Whether a process has all these files open. Blocking."""
    folder, missing = f"/proc/{pid}/fd", set(files)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                missing.discard(file_id(os.stat(f"{folder}/{name}")))
    return not missing


async def settle(background: DriverTasks) -> None:
    """Give newly started emulators time to open their disks."""
    if background.tasks:
        await asyncio.wait(background.tasks, timeout=CLOSE_LIMIT_S)
