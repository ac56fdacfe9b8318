"""Opens files of an allocation without leaving its directory (invariant F3). Blocking.

A task writes its own directory, so it may place any symlink there and swap it at any time. A check of a path before its
use would therefore be useless: a file is opened in one step that cannot leave the root (`openat2` with
RESOLVE_BENEATH), or, where the kernel lacks it, by walking one component at a time without following any symlink. The
file is first opened without access (O_PATH), checked by its descriptor, and then opened for reading by that
descriptor, because the mere opening of a device or a pipe may have an effect.
"""

from __future__ import annotations

import errno
import os
import stat

from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Reason
from yurt.sdk.opening import HOLD_FLAGS, REFUSED, RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, descend, has_openat2, openat2

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
PRIVATE_PARTS = ("secrets", "private")
DEPTH_MAX = 64
RETRIES = 8

Owners = frozenset[int] | None
"""Users who may own a hard-linked file; None is anyone (see `yurt.client.files.link_owners`)."""


def parts_of(path: str) -> tuple[str, ...]:
    """The components of a user's path, relative to the allocation's directory."""
    if "\0" in path:
        raise Invalid("a path cannot hold a NUL character")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Invalid(f"path {path!r} leaves the allocation's directory; give a path without '..'")
    if len(parts) > DEPTH_MAX:
        raise Invalid(f"path {path!r} has more than {DEPTH_MAX} components")
    return parts


def open_beneath(root: str, path: str, *, owners: Owners) -> int:
    """A read-only descriptor of a file or directory beneath `root`; raises NotFound, Invalid or PermissionDenied."""
    parts = parts_of(path)
    try:
        root_fd = os.open(root, OPEN_FLAGS | os.O_DIRECTORY)
    except FileNotFoundError:
        raise NotFound("the allocation's directory does not exist on this node (any more)") from None
    try:
        folder_fd = _open_from(root_fd, parts, path, HOLD_FLAGS)
        try:
            _judge(folder_fd, root_fd, parts, path)
            check_names(folder_fd, owners, path)
            return _readable(folder_fd, root_fd, parts, path)
        finally:
            os.close(folder_fd)
    except OSError as error:
        raise _explained(error, path) from None
    finally:
        os.close(root_fd)


def open_inside(root: str, path: str, *, owners: Owners) -> int:
    """A read-only descriptor beneath `root`, secrets included: only for the agent's own work for that task."""
    parts = parts_of(path)
    try:
        root_fd = os.open(root, OPEN_FLAGS | os.O_DIRECTORY)
        try:
            found = _open_from(root_fd, parts, path, OPEN_FLAGS)
        finally:
            os.close(root_fd)
        try:
            check_names(found, owners, path)
        except PermissionDenied:
            os.close(found)
            raise
        return found
    except OSError as error:
        raise _explained(error, path) from None


def _readable(folder_fd: int, root_fd: int, parts: tuple[str, ...], path: str) -> int:
    """Open an O_PATH descriptor's file for reading."""
    if HOLD_FLAGS == OPEN_FLAGS:
        return os.dup(folder_fd)
    try:
        return os.open(f"/proc/self/fd/{folder_fd}", OPEN_FLAGS)
    except FileNotFoundError:
        found = _open_from(root_fd, parts, path, OPEN_FLAGS)
        if os.path.samestat(os.fstat(found), os.fstat(folder_fd)):
            return found
        os.close(found)
        raise


def _open_from(root_fd: int, parts: tuple[str, ...], path: str, flags: int) -> int:
    if not has_openat2():
        return _walk(root_fd, parts, flags)
    for _ in range(RETRIES):
        found = openat2(root_fd, "/".join(parts) or ".", flags, resolve=RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if found >= 0:
            return found
        if found in REFUSED:
            break
        if found != -errno.EAGAIN:
            raise OSError(-found, os.strerror(-found), path)
    return _walk(root_fd, parts, flags)


def _walk(root_fd: int, parts: tuple[str, ...], flags: int) -> int:
    """Open component by component, following no symbolic link."""
    steps = [(part, OPEN_FLAGS | os.O_DIRECTORY) for part in parts[:-1]] + [(part, flags) for part in parts[-1:]]
    return descend(
        os.dup(root_fd), steps, lambda folder, step: os.open(step[0], step[1] | os.O_NOFOLLOW, dir_fd=folder)
    )


def _judge(found: int, root_fd: int, parts: tuple[str, ...], path: str) -> None:
    """Raise unless it is a plain file or directory outside of a task's secrets."""
    mode = os.fstat(found).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise Invalid(f"{path!r} is neither a file nor a directory")
    real = _real_parts(found, root_fd) or parts
    if is_private(real) or is_private(parts):
        raise PermissionDenied(f"Reading secret file prohibited: {path}", reason=Reason.FILE_REFUSED)


def check_names(found: int, owners: Owners, path: str) -> None:
    """Raise for a hard link to another owner's file: it may be a file of the host."""
    entry = os.fstat(found)
    if owners is not None and stat.S_ISREG(entry.st_mode) and entry.st_nlink > 1 and entry.st_uid not in owners:
        raise PermissionDenied(
            f"{path!r} has {entry.st_nlink} names (hard links) and belongs to the user {entry.st_uid}, as whom no task "
            "of the allocation runs; copy it, or change its owner (for an artifact: chown = true)",
            reason=Reason.FILE_REFUSED,
        )


def is_private(parts: tuple[str, ...]) -> bool:
    """Whether a path is inside a task's secrets or private directory."""
    return len(parts) > 1 and parts[1] in PRIVATE_PARTS and parts[0] != "alloc"


def _real_parts(found: int, root_fd: int) -> tuple[str, ...]:
    """The resolved path of a descriptor; None where the system does not tell."""
    try:
        real, root = os.readlink(f"/proc/self/fd/{found}"), os.readlink(f"/proc/self/fd/{root_fd}")
    except OSError:
        return ()
    return tuple(real[len(root) :].strip("/").split("/")) if real.startswith(root + "/") else ()


def _explained(error: OSError, path: str) -> Exception:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return NotFound(f"no file {path!r} in the allocation's directory")
        case errno.EXDEV | errno.ELOOP:
            text = f"path {path!r} leads out of the allocation's directory by a symlink"
            return PermissionDenied(text, reason=Reason.FILE_REFUSED)
        case errno.EACCES | errno.EPERM:
            text = f"the agent may not read {path!r}: {error.strerror}"
            return PermissionDenied(text, reason=Reason.FILE_REFUSED)
        case _:
            return Invalid(f"cannot open {path!r}: {error.strerror}")
