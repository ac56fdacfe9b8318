"""Mount points from the kernel's table: `os.path.ismount` does not recognise bind mounts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from yurt.sdk.mounting import MOUNTS_FILE, c_library, plain

UMOUNTS_MAX = 16
"""The limit of mounts stacked at one path."""
MNT_DETACH = 2


def is_mounted(path: Path) -> bool:
    """Whether a file system is mounted at exactly this path. Blocking."""
    try:
        lines = Path(MOUNTS_FILE).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    real = os.path.realpath(path)
    return any(plain(words[4]) == real for words in (line.split(" ", 5) for line in lines) if len(words) > 4)


def unmount(path: Path, *, is_lazy: bool = False) -> None:
    """Unmount everything at a path; not an error when nothing is mounted. Blocking."""
    libc = c_library()
    for _ in range(UMOUNTS_MAX):
        if not is_mounted(path) or libc.umount2(os.fsencode(path), MNT_DETACH if is_lazy else 0) != 0:
            return


def remove_folders(paths: Iterable[Path]) -> None:
    """Remove empty folders; mount points and non-empty folders stay; blocking."""
    for path in paths:
        try:
            path.rmdir()
        except OSError:
            continue
