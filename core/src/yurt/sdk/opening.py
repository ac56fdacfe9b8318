"""Opens files below a folder in one step, safe against links that others create meanwhile. Blocking."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from yurt.sdk.mounting import c_library

T = TypeVar("T")

SYS_OPENAT2 = 437
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
REFUSED = (-errno.ENOSYS, -errno.EPERM)
"""How an old kernel, and a filter of system calls, answer openat2."""
NO_ANSWER = -(1 << 16)
"""No error number of the kernel."""
HOLD_FLAGS = (os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else READ_FLAGS


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def has_openat2() -> bool:
    """Whether the system call number is valid; an old kernel still answers ENOSYS."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64", "riscv64", "i686", "armv7l")


def openat2(folder: int, path: str, flags: int, *, resolve: int) -> int:
    """A descriptor, or the negative error number; raises ValueError for a path with NUL."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")  # which the C library would take for the end of the path
    how = _OpenHow(flags, 0, resolve)
    found = int(c_library().syscall(SYS_OPENAT2, folder, encoded, ctypes.byref(how), ctypes.sizeof(how)))
    return found if found >= 0 else -ctypes.get_errno()


def hold(root: str, path: str, *, makes: bool = False) -> int:
    """A descriptor for a file or folder below `root`, by a path without links and "..".

    It reads nothing, and opens neither pipes nor devices. Raises OSError: ELOOP where there is a link. `makes`: folders
    that are missing are made.
    """
    root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = NO_ANSWER if makes or ".." in path else _openat2_descriptor(root_fd, path)
    except ValueError:
        os.close(root_fd)
        raise
    if found == NO_ANSWER:
        return descend(root_fd, names_of(path), lambda folder, part: _hold_part(folder, part, makes=makes))
    os.close(root_fd)
    if found < 0:
        raise OSError(-found, os.strerror(-found), path)
    return found


def _openat2_descriptor(root: int, path: str) -> int:
    """A descriptor by one system call, the negative error number, or NO_ANSWER where the kernel refuses that call."""
    if not has_openat2():
        return NO_ANSWER
    found = openat2(root, "/".join(names_of(path)) or ".", HOLD_FLAGS, resolve=RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
    return NO_ANSWER if found in (*REFUSED, -errno.EAGAIN) else found


def names_of(path: str) -> Iterator[str]:
    """The components of a path, without empty ones and "."."""
    return (part for part in path.split("/") if part not in ("", "."))


def descend(start_fd: int, steps: Iterable[T], enter: Callable[[int, T], int]) -> int:
    """Go from an open folder to the next, step by step; returns the last descriptor.

    `enter` opens what one step names in an open folder. All descriptors on the way are closed, `start_fd` too, also
    when `enter` raises.
    """
    current = start_fd
    try:
        for step in steps:
            following = enter(current, step)
            os.close(current)
            current = following
    except BaseException:
        os.close(current)
        raise
    return current


def open_file(root: str, path: str) -> int:
    """Open a regular file below `root` for reading, by a path without links; raises OSError, EINVAL for other kinds."""
    fd = hold(root, path)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        if HOLD_FLAGS == READ_FLAGS:
            return os.dup(fd)
        return os.open(f"/proc/self/fd/{fd}", READ_FLAGS)
    finally:
        os.close(fd)


def _hold_part(folder: int, part: str, *, makes: bool) -> int:
    if part == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    try:
        found = os.open(part, HOLD_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not makes:
            raise
        os.mkdir(part, 0o755, dir_fd=folder)
        found = os.open(part, HOLD_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
    return found
