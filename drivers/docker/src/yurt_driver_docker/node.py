"""Reads files of this machine on which a container's limits depend."""

from __future__ import annotations

import errno
import os
import stat

PROFILE_BYTES_MAX = 1024 * 1024


def read_text(path: str) -> str:
    """The content of a small file, for a seccomp profile."""
    with open(path, encoding="utf-8", opener=opened) as file:
        return file.read(PROFILE_BYTES_MAX)


def opened(path: str, flags: int) -> int:
    """A regular file, opened without blocking on a pipe; raises OSError for other kinds."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a plain file", path)
