"""Enforces `ephemeral_disk.size`: compares the size of an allocation's directory with its group's request.

All files below the allocation's directory count, logs included; files in memory (secrets) and mounts from elsewhere do
not. A walk is bounded, and the pause until the next one grows with the size of the trees. A directory whose size stays
the same is measured less and less often: most allocations write little, and a machine may have hundreds of them. But
all are measured where the file system's free space falls, and none later than its last growth rate reaches its limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from yurt.client.files.alloc_dir import alloc_path
from yurt.lifecycle import allocation, events
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.structs.alloc import TaskState

if TYPE_CHECKING:
    from yurt.client.allocations.alloc_runner import AllocRunner

log = logging.getLogger(__name__)

OPTION = "ephemeral_disk.over_size"
STOP, WARN, OFF = "stop", "warn", "off"
MIB = 1024 * 1024
BLOCK = 512
INTERVAL_S = 5.0
PAUSE_PER_WALK = 50
"""The pause after a walk, as a multiple of the walk's duration: it bounds the share of time spent on walks."""
QUIET_PAUSE_MAX_S = 40.0
"""The longest time between two walks of a directory; it begins with `INTERVAL_S` and doubles without a change."""
ENTRIES_MAX = 1_000_000
LOT_S = 0.5
"""The time after which a call of a thread begins no further directory: the end of the agent waits for that call."""
FREE_FALL = 64 * MIB
"""The loss of free space between two looks, in bytes, from which every directory is measured."""


class Measured(msgspec.Struct, frozen=True):
    """The last walk of a directory: its monotonic time, the size in bytes and the pause until the next walk.

    `rate` is the last growth that was seen, in bytes a second.
    """

    at_s: float
    size: int
    pause_s: float
    rate: float


class DiskWatch:
    """Stops allocations that exceed their disk size, or only warns, as configured (`ephemeral_disk.over_size`)."""

    def __init__(
        self, alloc_dir: str, env: Env, *, mode: str, runners: Callable[[], Mapping[str, AllocRunner]]
    ) -> None:
        self._alloc_dir = alloc_dir
        self._env = env
        self._mode = mode if mode in (WARN, OFF) else STOP
        self._runners = runners
        self._warned: set[str] = set()
        self._measured: dict[str, Measured] = {}
        self._free = 0

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Measure all allocations repeatedly until cancelled."""
        while self._mode != OFF:
            begin = self._env.monotonic()
            await asyncio.wait({supervised(group, "sizes of allocations", self._look())})
            await self._env.sleep(max(INTERVAL_S, (self._env.monotonic() - begin) * PAUSE_PER_WALK))

    async def _look(self) -> None:
        runners = dict(self._runners())
        self._warned &= runners.keys()
        self._measured = {alloc_id: self._measured[alloc_id] for alloc_id in self._measured.keys() & runners.keys()}
        before, self._free = self._free, await self._env.in_thread(free_bytes, self._alloc_dir)
        is_filling = before - self._free > FREE_FALL
        due = [runner for runner in runners.values() if self._is_due(runner, is_filling=is_filling)]
        while due:
            folders = [str(alloc_path(self._alloc_dir, runner.alloc.id)) for runner in due]
            sizes = await asyncio.to_thread(sizes_below, folders, self._env.monotonic)
            for runner, size in zip(due, sizes, strict=False):
                self._note(runner, size)
            due = due[len(sizes) :]

    def _is_due(self, runner: AllocRunner, *, is_filling: bool) -> bool:
        alloc_id = runner.alloc.id
        if runner.is_over or alloc_id in self._warned or runner.task_group.ephemeral_disk.size_mb <= 0:
            return False
        known = self._measured.get(alloc_id)
        return is_filling or known is None or known.at_s + known.pause_s <= self._env.monotonic()

    def _note(self, runner: AllocRunner, size: int) -> None:
        limit_mb = runner.task_group.ephemeral_disk.size_mb
        before, now_s = self._measured.get(runner.alloc.id), self._env.monotonic()
        self._measured[runner.alloc.id] = next_of(before, size, now_s=now_s, limit=limit_mb * MIB)
        if size > limit_mb * MIB:
            self._act(runner, f"The allocation uses {size / MIB:.0f} of {limit_mb} MiB of ephemeral_disk")

    def _act(self, runner: AllocRunner, text: str) -> None:
        if self._mode == WARN:
            self._warned.add(runner.alloc.id)
            if not was_warned(runner.states.values()):
                log.warning("allocation exceeds its disk size: allocation=%s: %s", runner.alloc.id, text)
                runner.hooked.note(events.disk_exceeded(text))
            return
        log.warning("allocation exceeds its disk size: allocation=%s: %s", runner.alloc.id, text)
        reason = events.disk_exceeded(f"{text}; raise ephemeral_disk {{ size }} to let it use more")
        runner.stop(allocation.Stop(reason=reason, is_failure=True))


def was_warned(states: Iterable[TaskState]) -> bool:
    """Whether a task has the warning already, possibly from an earlier agent."""
    return any(event.type == events.DISK_EXCEEDED for state in states for event in state.events)


def next_of(before: Measured | None, size: int, *, now_s: float, limit: int) -> Measured:
    """The walk that has found this size, after the one before; sizes in bytes."""
    if before is None:
        return Measured(now_s, size, INTERVAL_S, 0.0)
    if size != before.size:
        rate = (size - before.size) / max(now_s - before.at_s, INTERVAL_S)
        return Measured(now_s, size, INTERVAL_S, rate if rate > 0 else before.rate)
    longest_s = (limit - size) / before.rate if before.rate else QUIET_PAUSE_MAX_S
    pause_s = max(min(2 * before.pause_s, QUIET_PAUSE_MAX_S, longest_s), INTERVAL_S)
    return Measured(now_s, size, pause_s, before.rate)


def free_bytes(folder: str) -> int:
    """The free space of a folder's file system in bytes; 0 without the folder. Blocking."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def sizes_below(roots: Iterable[str], monotonic: Callable[[], float]) -> list[int]:
    """The disk usage in bytes of the first folders: of one at least, and of as many as `LOT_S` allows. Blocking."""
    end_s, sizes = monotonic() + LOT_S, list[int]()
    for root in roots:
        sizes.append(bytes_below(root))
        if monotonic() >= end_s:
            break
    return sizes


def bytes_below(root: str) -> int:
    """The disk usage in bytes of the files below a folder, on its file system, without following links. Blocking."""
    try:
        device = os.lstat(root).st_dev
    except OSError:
        return 0
    total, left, folders = 0, ENTRIES_MAX, [root]
    shared: set[int] = set()
    while folders and left > 0:
        for path, found in _entries(folders.pop(), device):
            left -= 1
            if stat.S_ISDIR(found.st_mode):
                folders.append(path)
            elif found.st_nlink > 1 and found.st_ino in shared:
                continue
            elif found.st_nlink > 1:
                shared.add(found.st_ino)
            total += found.st_blocks * BLOCK
    return total


def _entries(folder: str, device: int) -> Iterator[tuple[str, os.stat_result]]:
    """The entries of a folder that are on this device; entries removed meanwhile are left out."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if found.st_dev == device:
            yield entry.path, found
