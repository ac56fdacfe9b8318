"""Detects out-of-memory kills of a container under cgroups v1.

There engines do not always see it, or tell it too late. The kernel tells who registered an eventfd with the cgroup,
both when memory runs out and when the cgroup is removed: the second shows because the cgroup cannot be read any more.
With cgroups of version 2 the engine's word is enough, and nothing is watched.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

CONTROLLER = "/sys/fs/cgroup/memory"


def memory_cgroup(pid: int) -> str:
    """The folder of a process's v1 memory cgroup; empty without one."""
    with suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if "memory" in controllers.split(",") and path != "/":
                return CONTROLLER + path
    return ""


class OomWatch:
    """Watches one cgroup until it is removed or `close`."""

    def __init__(self, pid: int) -> None:
        self.has_run_out = False
        self._notice = self._control = -1
        folder = memory_cgroup(pid)
        if folder:
            with suppress(OSError):
                self._begin(folder)

    def _begin(self, folder: str) -> None:
        self._control = os.open(f"{folder}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        self._notice = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        with open(f"{folder}/cgroup.event_control", "w", encoding="utf-8") as file:
            file.write(f"{self._notice} {self._control}")
        asyncio.get_running_loop().add_reader(self._notice, self._take)

    def _take(self) -> None:
        """Handle a notification of the cgroup."""
        try:
            os.eventfd_read(self._notice)
            os.pread(self._control, 1, 0)
            self.has_run_out = True
        except OSError:
            self.close()

    def close(self) -> None:
        """Stop watching."""
        if self._notice >= 0:
            asyncio.get_running_loop().remove_reader(self._notice)
        for descriptor in (self._notice, self._control):
            if descriptor >= 0:
                os.close(descriptor)
        self._notice = self._control = -1
