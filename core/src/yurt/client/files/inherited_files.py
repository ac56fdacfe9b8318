"""Changes the owner of inherited files (`sticky`, `migrate`) to the dynamic user of the task that inherits them.

Each allocation's task has a dynamic user of its own, so its predecessor's files belong to another id. Only files of
that id change their owner. When the id is unknown, because the data came from another node or the predecessor is
forgotten, it is any id of the pool that owns a file in the task's own folder, or any id of the pool in a group of one
task. In that case a file with several hard links keeps its owner, because another link may be another task's file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from yurt.client.files.alloc_dir import SHARED, alloc_path, component
from yurt.client.files.users import UserRange
from yurt.sdk.value import Value


class Inheritance(Value):
    """The task's dynamic user, that of its predecessor (0 when unknown), and whether the group has no other task."""

    uid: int
    old: int
    pool: UserRange
    is_alone: bool


def give_inherited_files(root: str, alloc_id: str, task: str, inheritance: Inheritance) -> int:
    """Change the owner of files in `local` and the shared `data`; returns the number of changed files. Blocking."""
    base = alloc_path(root, alloc_id)
    folders = (base / component(task) / "local", base / SHARED / "data")
    uid, old, pool = inheritance.uid, inheritance.old, inheritance.pool
    if old:
        return sum(_give(folder, uid, lambda found: found.st_uid == old) for folder in folders)
    in_pool = {found.st_uid for _, _, found in _walk(folders[0]) if pool.first <= found.st_uid <= pool.last}

    def is_inherited(found: os.stat_result) -> bool:
        is_single = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
        in_reach = pool.first <= found.st_uid <= pool.last if inheritance.is_alone else found.st_uid in in_pool
        return is_single and in_reach

    return sum(_give(folder, uid, is_inherited) for folder in folders)


def _give(folder: Path, uid: int, is_meant: Callable[[os.stat_result], bool]) -> int:
    given = 0
    for name, parent, found in _walk(folder):
        if found.st_uid != uid and is_meant(found):
            os.chown(name, uid, uid, dir_fd=parent, follow_symlinks=False)
            given += 1
    return given


def _walk(folder: Path) -> Iterator[tuple[str, int, os.stat_result]]:
    """Each entry below a folder with the open folder that holds it; links are not followed, not even to the folder."""
    for _, folders, files, opened in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            try:
                yield name, opened, os.stat(name, dir_fd=opened, follow_symlinks=False)
            except FileNotFoundError:
                continue
