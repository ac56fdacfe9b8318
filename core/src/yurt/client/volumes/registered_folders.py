"""Decides which folders `volume register` may offer to tasks: those listed in the configuration and below. Blocking.

A volume gives tasks a part of the host, so a path is opened beneath its listed folder in one step that cannot leave it
(`openat2`; elsewhere component by component). A path with a symbolic link is refused, because the link could point
elsewhere later; this is checked again right before each mount. A folder inside another volume, around one, or
overlapping the agent's own data is refused too: tasks could replace it, or read more than the operator meant.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable

from yurt.sdk.errors import Invalid
from yurt.sdk.opening import HOLD_FLAGS, REFUSED, RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, has_openat2, hold, openat2

SETTING = "host_volume_register_dirs"
RETRIES = 16
"""The number of repeated resolutions: a rename beneath the folder makes one fail (EAGAIN)."""


class RegisteredFolders:
    """The folders that a node may offer as registered volumes."""

    def __init__(self, listed: tuple[str, ...], *, own: tuple[str, ...]) -> None:
        """`listed` are those of the configuration; `own` are folders of the agent, which are never offered."""
        self._listed = tuple(os.path.normpath(folder) for folder in listed)
        self._own = tuple(os.path.normpath(folder) for folder in own if folder)

    def check(self, path: str, *, others: Iterable[str] = ()) -> None:
        """Check that the path may be offered and overlaps none of the `others`; raises Invalid."""
        folder = os.path.normpath(path)
        if not path.startswith("/") or "\0" in path or ".." in path.split("/") or folder.strip("/") == "":
            raise Invalid(f"host path {path[:256]!r} is not a folder of this node, given by its full path")
        listed = next((each for each in self._listed if is_beneath(folder, each)), None)
        if listed is None:
            listed = ", ".join(self._listed) or "none"
            raise Invalid(
                f"host path {folder!r} is not beneath a folder that may be registered on this node "
                f"(client {{ {SETTING} }}: {listed})"
            )
        real = _opened_path(listed, os.path.relpath(folder, listed), folder)
        for kind, used in (("the agent's folder", self._own), ("the host volume at", tuple(others))):
            for each in used:
                if overlaps(real, os.path.realpath(each)):
                    raise Invalid(f"host path {folder!r} overlaps with {kind} {each}; choose another folder")


def is_beneath(path: str, folder: str) -> bool:
    """Whether a normalized path is the folder or lies beneath it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def overlaps(one: str, other: str) -> bool:
    """Whether one of two folders contains the other."""
    return is_beneath(one, other) or is_beneath(other, one)


def _opened_path(listed: str, below: str, path: str) -> str:
    """The resolved path of a folder; raises Invalid for a path that is not a folder or passes a symbolic link."""
    try:
        root = os.open(listed, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{listed}, of client {{ {SETTING} }}, cannot be opened: {error.strerror}") from None
    try:
        folder_fd = _open_beneath(root, listed, below)
    except OSError as error:
        reason = "a symbolic link on the way leaves the listed folder, or is none of its own folders"
        text = reason if error.errno in (errno.EXDEV, errno.ELOOP) else os.strerror(error.errno or errno.EIO)
        raise Invalid(f"host path {path!r} is not a folder of this node that may be offered: {text}") from None
    finally:
        os.close(root)
    try:
        if not stat.S_ISDIR(os.fstat(folder_fd).st_mode):
            raise Invalid(f"host path {path!r} is not a folder of this node, given by its full path")
        real, expected = path_of(folder_fd, path), os.path.normpath(os.path.join(os.path.realpath(listed), below))
        if real != expected:
            raise Invalid(f"host path {path!r} is reached by a symbolic link; register {real!r} itself")
        return real
    finally:
        os.close(folder_fd)


def _open_beneath(root: int, listed: str, below: str) -> int:
    if not has_openat2():
        return hold(listed, below)
    for _ in range(RETRIES):
        found = openat2(root, below, HOLD_FLAGS | os.O_DIRECTORY, resolve=RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if found >= 0:
            return found
        if found in REFUSED:
            return hold(listed, below)
        if found != -errno.EAGAIN:
            raise OSError(-found, os.strerror(-found))
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def path_of(folder_fd: int, path: str) -> str:
    """The path of an open folder; where the system does not report it, the resolved path."""
    return os.readlink(f"/proc/self/fd/{folder_fd}") if sys.platform == "linux" else os.path.realpath(path)
