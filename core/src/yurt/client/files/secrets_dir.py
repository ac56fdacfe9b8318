"""Keeps secrets of tasks in memory: a small tmpfs over their folder, where the agent may mount one.

Every mount has the source `SOURCE`, by which it is found and unmounted: at the end of its allocation, and when the
directory is removed. A dev agent mounts none, because nothing would unmount it after a kill of the agent. There, and
without the right to mount, the secrets stay in an ordinary folder that only the task's user can read.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path

from yurt.sdk.mounting import MNT_DETACH, MOUNTS_FILE, UMOUNT_NOFOLLOW, libc_call, plain
from yurt.sdk.opening import hold

SOURCE = "yurt-secrets"
KIND = "tmpfs"
DEFAULT_SIZE_MB = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8

log = logging.getLogger(__name__)


def mount_secrets(folder: str, size_mb: int = 0) -> bool:
    """Mount a tmpfs over a task's folder, unless one is mounted; returns whether one is. Blocking.

    On a restart it is mounted already. A sibling may put a link in the folder's place, so that the folder is opened,
    without following any, and mounted over by its descriptor; raises OSError for a link.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    if folder in secrets_mounts(folder):
        return True
    task_dir, name = os.path.split(folder)
    folder_fd = hold(os.path.dirname(task_dir), f"{os.path.basename(task_dir)}/{name}")
    try:
        failed = _mount_over(folder_fd, size_mb)
    finally:
        os.close(folder_fd)
    if failed:
        log.warning("secrets stay on the disk: %s cannot be mounted over: %s", folder, os.strerror(failed))
    return not failed


def _mount_over(folder_fd: int, size_mb: int) -> int:
    """Mount a tmpfs over an open folder, with its owner and mode; 0, or the errno."""
    found = os.fstat(folder_fd)
    options = f"size={size_mb or DEFAULT_SIZE_MB}m,mode={found.st_mode & 0o777:o},uid={found.st_uid},gid={found.st_gid}"
    place = f"/proc/self/fd/{folder_fd}".encode()
    return libc_call("mount", SOURCE.encode(), place, KIND.encode(), MS_NOSUID | MS_NODEV | MS_NOEXEC, options.encode())


def unmount_secrets(root: str, mounts_file: str = MOUNTS_FILE) -> None:
    """Unmount all such mounts beneath a folder. Blocking."""
    for point in secrets_mounts(root, mounts_file):
        failed = libc_call("umount2", os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW)
        if failed and failed != errno.EINVAL:
            log.warning("the secrets at %s cannot be unmounted: %s", point, os.strerror(failed))


def secrets_mounts(root: str, mounts_file: str = MOUNTS_FILE) -> tuple[str, ...]:
    """The mount points at a folder or beneath it; none where the system does not tell."""
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
