"""Secrets of tasks in memory: a small tmpfs in place of the folder, where the agent may mount one.

Every mount bears a name of ours, by which it is found and taken away: at the end of its allocation, and when the
directory is removed. A dev agent mounts none: when it is killed, nothing of it may stay, and nobody would be left to
unmount. There, and without the right to mount, the folder stays a folder, readable by the task's user alone.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import sys
from pathlib import Path

SOURCE = "yurt-secrets"
KIND = "tmpfs"
MOUNTS_FILE = "/proc/self/mountinfo"
DEFAULT_SIZE_MB = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8

log = logging.getLogger(__name__)


def mount_secrets(folder: str, size_mb: int = 0) -> bool:
    """Mount memory over a folder, unless that is done already; whether it is mounted. Blocking.

    The folder is the agent's, in a tree that no task has seen yet; on a restart of the task it is mounted already.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    if folder in secrets_mounts(folder):
        return True
    found = os.stat(folder)
    options = f"size={size_mb or DEFAULT_SIZE_MB}m,mode={found.st_mode & 0o777:o},uid={found.st_uid},gid={found.st_gid}"
    failed = _libc_call(
        "mount", SOURCE.encode(), os.fsencode(folder), KIND.encode(), MS_NOSUID | MS_NODEV | MS_NOEXEC, options.encode()
    )
    if failed:
        log.warning("secrets stay on the disk: %s cannot be mounted over: %s", folder, os.strerror(failed))
    return not failed


def unmount_secrets(root: str, mounts_file: str = MOUNTS_FILE) -> None:
    """Take away all such mounts beneath a folder. Blocking."""
    for point in secrets_mounts(root, mounts_file):
        failed = _libc_call("umount2", os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW)
        if failed and failed != errno.EINVAL:
            log.warning("the secrets at %s cannot be unmounted: %s", point, os.strerror(failed))


def secrets_mounts(root: str, mounts_file: str = MOUNTS_FILE) -> tuple[str, ...]:
    """Where such mounts are, at a folder or beneath it; nothing where the system does not tell."""
    try:
        lines = Path(mounts_file).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ()
    real = os.path.realpath(root)
    found = []
    for line in lines:
        place, _, kind = line.partition(" - ")
        words = place.split(" ")
        if kind.split(" ")[:2] == [KIND, SOURCE] and len(words) > 4:
            point = plain(words[4])
            if point == real or point.startswith(f"{real}/"):
                found.append(root + point[len(real) :])
    return tuple(found)


def plain(escaped: str) -> str:
    """A path as mountinfo writes it (proc(5)), with its escapes undone."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        escaped = escaped.replace(octal, character)
    return escaped


def _libc_call(name: str, *arguments: bytes | int) -> int:
    """0, or the error's number."""
    libc = ctypes.CDLL(None, use_errno=True)
    typed = [ctypes.c_ulong(each) if isinstance(each, int) and name == "mount" else each for each in arguments]
    return ctypes.get_errno() if getattr(libc, name)(*typed) != 0 else 0
