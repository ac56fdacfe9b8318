"""The checkpoint directory of a task: its place on the host, and the time of its last change.

The task owns the directory, so links in it are neither followed nor read.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from itertools import islice
from typing import Final, NamedTuple

from yurt.client.files.alloc_dir import FOLDER_FLAGS, OPEN_MODE, component
from yurt.client.tasks.client_task import ClientTask
from yurt.structs.policies import Checkpoint

DONE: Final = ".done"
"""The file that a task writes when it has saved its work and waits to be stopped."""
ENTRIES_MAX: Final = 1_000
"""The largest number of entries of the directory that are examined."""


class Saved(NamedTuple):
    """The last changes of any entry and of `.done`, in ns since 1970 (0: it does not exist)."""

    at: int = 0
    done_at: int = 0


def folder_of(task: ClientTask, checkpoint: Checkpoint) -> tuple[str, tuple[str, ...]] | None:
    """A trusted folder of the host and the names below it; None when the path lies outside of the task's mounts."""
    if not checkpoint.path.startswith("/"):
        return os.path.join(task.dirs.shared_dir, "data"), tuple(checkpoint.path.split("/"))
    path = posixpath.normpath(checkpoint.path)
    best: tuple[str, str] | None = None
    for mount in task.given.mounts:
        top = posixpath.normpath(mount.task_path)
        if (path == top or path.startswith(top.rstrip("/") + "/")) and (best is None or len(top) > len(best[0])):
            best = (top, mount.host_path)
    if best is None:
        return None
    below = path[len(best[0]) :].strip("/")
    return best[1], tuple(below.split("/")) if below else ()


def make_folder(task: ClientTask, checkpoint: Checkpoint) -> None:
    """Make the directory, open to all tasks of the allocation; in a volume the task makes it itself. Blocking."""
    found = folder_of(task, checkpoint)
    if found is None or checkpoint.path.startswith("/"):
        return
    folder_fd = os.open(found[0], FOLDER_FLAGS)
    try:
        for name in found[1]:
            is_new = True
            try:
                os.mkdir(component(name), dir_fd=folder_fd)
            except FileExistsError:
                is_new = False
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = inner
            if is_new:
                os.fchmod(folder_fd, OPEN_MODE)
    finally:
        os.close(folder_fd)


def last_saved(task: ClientTask, checkpoint: Checkpoint) -> Saved:
    """The times of the task's last checkpoint; zeros without one, or when the directory is unknown. Blocking."""
    found = folder_of(task, checkpoint)
    if found is None:
        return Saved()
    with contextlib.suppress(OSError):
        folder_fd = os.open(found[0], FOLDER_FLAGS)
        try:
            for name in found[1]:
                inner = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
                os.close(folder_fd)
                folder_fd = inner
            return _newest(folder_fd)
        finally:
            os.close(folder_fd)
    return Saved()


def _newest(folder: int) -> Saved:
    with os.scandir(folder) as entries:
        times = [_changed(entry) for entry in islice(entries, ENTRIES_MAX)]
    return Saved(max((at for _, at in times), default=0), max((at for name, at in times if name == DONE), default=0))


def _changed(entry: os.DirEntry[str]) -> tuple[str, int]:
    """The name of an entry and the time of its last change; 0 for an entry that no longer exists."""
    try:
        return entry.name, entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return entry.name, 0
