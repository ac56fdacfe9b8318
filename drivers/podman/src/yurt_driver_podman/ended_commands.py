"""Cleans up ended commands in containers, which podman would retain for five more minutes.

For each command that was started by podman's API its monitor (conmon) stays, with a child that sleeps for the
`exit_command_delay` of containers.conf (300 s), in which clients can query the exit code, and then becomes the
`podman container cleanup` that removes the command's record. With a command every 10 s, 60 such processes exist. The
driver has the exit code when it reports the end of a command: it then wakes the sleeper, and podman cleans up at once.

SIGTERM wakes it: conmon passes the signal to its command while that runs, and ignores it afterwards; the sleep ends.
Only processes of this machine that the agent may signal can be woken; others sleep to the end, as podman intends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from yurt.sdk.containers.background import DriverTasks

LOOKS: Final = 40
LOOK_S: Final = 0.1
"""The interval of looks: a sleeper appears a few ms after its command's end, and a cleanup takes about 100 ms."""
MONITOR: Final = b"conmon"
ID_FLAG: Final = b"-u"


class EndedCommands:
    """Makes podman clean up commands whose exit codes are read; one scan of processes serves many commands."""

    def __init__(self, background: DriverTasks) -> None:
        self._background = background
        self._looks_left: dict[str, int] = {}

    def add(self, exec_id: str) -> None:
        """Add an ended command whose exit code is read."""
        is_idle = not self._looks_left
        self._looks_left[exec_id] = LOOKS
        if is_idle:
            self._background.start("clearing after commands", self._clear)

    async def _clear(self) -> None:
        """Wake monitors until none is left, or for a limited time."""
        try:
            while self._looks_left:
                await asyncio.sleep(LOOK_S)
                looks = dict(self._looks_left)
                self._forget(looks, await asyncio.to_thread(wake_sleepers, looks.keys()))
        finally:
            self._looks_left.clear()

    def _forget(self, looks: Mapping[str, int], there: Collection[str]) -> None:
        """Drop commands without monitors, and those searched for often enough."""
        for exec_id, looks_left in looks.items():
            if exec_id in there and looks_left > 1:
                self._looks_left[exec_id] = looks_left - 1
            else:
                del self._looks_left[exec_id]


def wake_sleepers(exec_ids: Collection[str]) -> set[str]:
    """Wake the sleeping monitors of these commands; returns the commands that still have one."""
    monitors = {pid: exec_id for pid in pids() if (exec_id := command_of(pid)) in exec_ids}
    for pid, exec_id in monitors.items():
        if monitors.get(parent_of(pid)) == exec_id:
            wake(pid, exec_id)
    return set(monitors.values())


def wake(pid: int, exec_id: str) -> None:
    """Signal a process, unless its pid was reused."""
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if command_of(pid) == exec_id:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)


def pids() -> list[int]:
    """All processes of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_of(pid: int) -> str:
    """The id of the command that a process monitors; empty when it is not a monitor."""
    words = read(pid, "cmdline").split(b"\0")
    if os.path.basename(words[0]) != MONITOR or ID_FLAG not in words[:-1]:
        return ""
    return words[words.index(ID_FLAG) + 1].decode(errors="replace")


def parent_of(pid: int) -> int:
    """The parent of a process; 0 when it is gone."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def read(pid: int, name: str) -> bytes:
    """A file of a process in /proc; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
