"""Where mounts of a task may lead; pure but for `resolve`, which follows links.

A path inside the allocation's directory is always allowed, however it is written; whatever leads out of it needs
`volumes.enabled`, and so does that directory itself: a task that can write there could put a link in place of another
task's folder, or of the one of the logs. The resolved path is the one that the engine gets, or what is held for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import DriverError, RecoverableError

PROPAGATION = {"private": "rprivate", "host-to-task": "rslave", "bidirectional": "rshared"}
Resolve = Callable[[str], str]


def hint(plugin: str) -> str:
    """How the operator allows host paths."""
    return f'set plugin "{plugin}" {{ config {{ volumes {{ enabled = true }} }} }} in the configuration of this client'


def host_path(source: str, dirs: TaskDirs, resolve: Resolve, *, is_free: bool, plugin: str) -> str:
    """A path of the host with its links followed; a relative one starts at the task's directory."""
    if "\0" in source or ":" in source:
        raise DriverError(f"mount source {source!r} holds a character that no mount source may have")
    try:
        resolved = resolve(posixpath.normpath(posixpath.join(dirs.task_dir, source)))
    except OSError as error:
        raise RecoverableError(f'"{source}" changed while its links were followed: {error.strerror}') from None
    alloc_dir = resolve(dirs.alloc_dir)
    if is_free or resolved.startswith(alloc_dir + "/"):
        return resolved
    if resolved == alloc_dir:
        raise DriverError(
            f'"{source}" is the directory of the whole allocation, which no task may write; mount one of its folders,'
            f" or {hint(plugin)}"
        )
    raise DriverError(f'"{source}" leads out of the allocation, and mounts of host paths are off here; {hint(plugin)}')
