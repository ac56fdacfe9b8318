"""Pins files at paths that no task can change: an opened, checked descriptor is mounted there for other processes.

    <folder>/<group>/<number>     a group for each start, a place for each mount; removed when the start is over

It requires root and the right to mount. The next agent, or `clear_command`, removes the mounts of a killed agent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from urllib.parse import quote

from yurt.sdk import mounting
from yurt.sdk.opening import HOLD_FLAGS

PARENT = "/run/yurt"
FOLDER_MODE = 0o711
MAKING_ROUNDS = 10


class PinnedPaths:
    """The pinned paths of one driver; `name` separates its folder from other drivers'. All methods block."""

    def __init__(self, name: str) -> None:
        self.folder = f"{PARENT}/mounts-{quote(name, safe='')}"
        self._live: set[str] = set()

    @property
    def clear_command(self) -> tuple[str, ...]:
        """The command that removes these mounts once the agent is gone."""
        return (sys.executable, "-I", "-S", "-E", os.path.abspath(mounting.__file__), self.folder)

    def drop_command(self, group: str) -> tuple[str, ...]:
        """The command that removes the mounts of a group."""
        return (*self.clear_command, group)

    def are_seen(self, mounts_file: str = mounting.MOUNTS_FILE) -> bool:
        """Whether the agent can mount, and the process of a mountinfo file sees the mount; tested with a mount."""
        if sys.platform != "linux" or os.geteuid() != 0:
            return False
        group = self.new_group()
        try:
            place = self.mount(os.open(mounting.MOUNTS_FILE, HOLD_FLAGS), group, 0)
            return place in mounting.points_below(self.folder, mounts_file)
        except OSError:
            return False
        finally:
            self.drop(group)

    def new_group(self) -> str:
        """A new group of paths with an unpredictable name."""
        group = secrets.token_hex(8)
        self.keep(group)
        return group

    def keep(self, group: str) -> None:
        """Mark a group as used."""
        self._live.add(group)

    def mount(self, descriptor: int, group: str, number: int) -> str:
        """Mount a descriptor at a pinned path and close it; returns the path. Raises OSError."""
        try:
            self._make_group(group)
            place = f"{self.folder}/{group}/{number}"
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                os.mkdir(place, FOLDER_MODE)
            else:
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            mounting.bind(descriptor, place)
            return place
        finally:
            os.close(descriptor)

    def _make_group(self, group: str) -> None:
        """Create its folder; the folder above may vanish at any time with the last group of another start."""
        for _ in range(MAKING_ROUNDS):
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(f"{self.folder}/{group}", mode=FOLDER_MODE, exist_ok=True)
                return
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), self.folder)

    def drop(self, group: str) -> None:
        """Release a group of paths."""
        mounting.drop(self.folder, group)
        self._live.discard(group)

    def clear(self) -> None:
        """Remove the mounts that a killed agent left; groups in use stay."""
        if os.geteuid() == 0:
            mounting.clear(self.folder, self._live)

    def has_any(self) -> bool:
        """Whether there may be pinned paths, of this or an earlier agent."""
        return os.path.isdir(self.folder)

    def close(self) -> None:
        """Release everything."""
        self._live.clear()
        self.clear()
