"""Permitted sources of a task's mounts; pure but for `resolve`, which follows links.

A path inside the allocation's directory is allowed in any spelling; a path outside needs `volumes.enabled`. So do paths
by which a task could control another one: the allocation's directory itself, where it could replace another task's
folder by a link; the directory of another task, which is the root of an isolated one; and its own secrets, where the
emulator of a virtual machine listens. The engine gets the resolved path, or the path at which it is pinned.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import DriverError, RecoverableError

PROPAGATION = {"private": "rprivate", "host-to-task": "rslave", "bidirectional": "rshared"}
SHARED = "alloc"
PRIVATE = ("secrets", "private")
Resolve = Callable[[str], str]


def hint(plugin: str) -> str:
    """A hint how the operator allows host paths."""
    return f'set plugin "{plugin}" {{ config {{ volumes {{ enabled = true }} }} }} in the configuration of this client'


def host_path(source: str, dirs: TaskDirs, resolve: Resolve, *, is_free: bool, plugin: str) -> str:
    """A host path with links resolved; a relative one starts at the task's directory."""
    if "\0" in source or ":" in source:
        raise DriverError(f"mount source {source!r} holds a character that no mount source may have")
    try:
        resolved = resolve(posixpath.normpath(posixpath.join(dirs.task_dir, source)))
    except OSError as error:
        raise RecoverableError(f'"{source}" changed while its links were followed: {error.strerror}') from None
    alloc_dir = resolve(dirs.alloc_dir)
    if is_free:
        return resolved
    if resolved != alloc_dir and not resolved.startswith(alloc_dir + "/"):
        raise DriverError(
            f'"{source}" leads out of the allocation, and mounts of host paths are off here; {hint(plugin)}'
        )
    owner = private_to(resolved[len(alloc_dir) + 1 :], own=posixpath.basename(dirs.task_dir))
    if owner:
        raise DriverError(f'"{source}" is {owner}; mount a folder that the tasks share, or {hint(plugin)}')
    return resolved


def private_to(path: str, *, own: str) -> str:
    """A description of the owner of an allocation path that the task `own` must not mount; empty when it may."""
    owner, _, rest = path.partition("/")
    if not owner:
        return "the directory of the whole allocation"
    is_shared = owner in (SHARED, own) or (rest and rest.split("/")[0] not in PRIVATE)
    return "" if is_shared else f'private to the task "{owner}"'
