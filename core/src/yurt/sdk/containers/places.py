"""Where mounts of a task may lead; pure but for `resolve`, which follows links.

A path inside the allocation's directory is always allowed, however it is written; whatever leads out of it needs
`volumes.enabled`. The resolved path is the one that the engine gets.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import DriverError

PROPAGATION = {"private": "rprivate", "host-to-task": "rslave", "bidirectional": "rshared"}
Resolve = Callable[[str], str]


def hint(plugin: str) -> str:
    """How the operator allows host paths."""
    return f'set plugin "{plugin}" {{ config {{ volumes {{ enabled = true }} }} }} in the configuration of this client'


def host_path(source: str, dirs: TaskDirs, resolve: Resolve, *, is_free: bool, plugin: str) -> str:
    """A path of the host with its links followed; a relative one starts at the task's directory."""
    if "\0" in source or ":" in source:
        raise DriverError(f"mount source {source!r} holds a character that no mount source may have")
    resolved = resolve(posixpath.normpath(posixpath.join(dirs.task_dir, source)))
    alloc_dir = resolve(dirs.alloc_dir)
    is_inside = resolved == alloc_dir or resolved.startswith(alloc_dir + "/")
    if is_inside or is_free:
        return resolved
    raise DriverError(f'"{source}" leads out of the allocation, and mounts of host paths are off here; {hint(plugin)}')
