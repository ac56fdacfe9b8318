"""Small system calls shared by zygote, shims and their children.

It is part of the zygote's program and imports only modules that the zygote needs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

SMALL_FILE_BYTES = 16384
READ_SIZE = 65536
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def load_libc() -> ctypes.CDLL | None:
    """The C library, for prctl and setns; None where it is unavailable."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.restype = libc.setns.restype = ctypes.c_int
    except (ImportError, OSError, AttributeError):
        return None
    return libc


def load_prctl() -> Callable[..., int]:
    """prctl(2) without errno, which would be kept for each thread; Linux only."""
    try:
        import ctypes

        return ctypes.PyDLL(None).prctl if sys.platform == "linux" else no_prctl
    except (ImportError, OSError, AttributeError):
        return no_prctl


def no_prctl(*_arguments: int | bytes) -> int:
    """Stands in for prctl(2) where it is unavailable."""
    return -1


def plain_pipe(_flags: int) -> tuple[int, int]:
    """A non-blocking pipe, where pipe2(2) is missing."""
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


WAKE_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
wake_pipe: Callable[[int], tuple[int, int]] = getattr(os, "pipe2", plain_pipe)


def start_ticks(pid: int) -> int:
    """A process's start time, in clock ticks since boot; 0 without /proc."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def stat_fields(pid: int) -> list[bytes]:
    """The fields after the name in /proc/<pid>/stat: state, parent, ... (proc(5), fields 3 and on)."""
    return (read_small(b"/proc/%d/stat" % pid) or b"").rpartition(b")")[2].split()


def children_of(parent: int) -> list[int]:
    """The direct children of a process, zombies included; empty where there is no /proc."""
    listed = read_small(b"/proc/%d/task/%d/children" % (parent, parent))
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    pids = [int(entry) for entry in list_folder(b"/proc") if entry.isdigit()]
    return [pid for pid in pids if (stat_fields(pid) or [b"", b"0"])[1] == b"%d" % parent]


def read_small(path: bytes) -> bytes | None:
    """The start of a kernel file; None when it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, SMALL_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)


def write_file(path: bytes, data: bytes) -> None:
    """Write into an existing cgroup or proc file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def replace_file(path: bytes, data: bytes) -> None:
    """Replace a file atomically; not synced, since the task would not survive a crash of the machine either."""
    temporary = path + b".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    os.rename(temporary, path)


def list_folder(folder: bytes) -> list[bytes]:
    """The names in a folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def quietly(call: Callable[..., object], *arguments: object) -> None:
    """Ignore OSError: the process has gone, the folder is in use, or the limit cannot be changed."""
    try:
        call(*arguments)
    except OSError:
        pass


def read_frame(fd: int) -> bytes:
    """Read one message of the agent, prefixed by its length (4 bytes, big endian); empty when the agent is gone."""
    header = read_exactly(fd, 4)
    return read_exactly(fd, int.from_bytes(header, "big")) if header else b""


def read_exactly(fd: int, size: int) -> bytes:
    """Read exactly `size` bytes; empty when the agent is gone."""
    data = os.read(fd, size)
    while 0 < len(data) < size:
        part = os.read(fd, size - len(data))
        if not part:
            return b""
        data += part
    return data
