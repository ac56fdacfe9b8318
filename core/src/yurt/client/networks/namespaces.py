"""Network namespaces that outlive the process that made them. Linux and root only; blocking.

A namespace lives as long as something holds it. Here that is a bind mount of its file, in the folder of `ip netns`, so
that `ip netns exec` finds it too. It is made on a thread of its own, which leaves the process's namespace for good and
ends; no other thread notices.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from yurt.sdk.errors import RecoverableError
from yurt.sdk.mounting import c_library

FOLDER = Path("/run/netns")
OWN = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SHARED = 0x1000, 0x4000, 0x100000
MNT_DETACH = 2
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCBRADDBR = 0x8913, 0x8914, 0x89A0
IFF_UP = 1
THREAD_LIMIT_S = 30.0


def make_namespace(path: Path) -> None:
    """Create a namespace with an active loopback interface and bind it to `path`."""
    _prepare_folder(path.parent)

    def work() -> None:
        _unshare()
        _raise_loopback()
        _bind(OWN, path)

    try:
        _on_thread(work)
    except RecoverableError as error:
        raise RecoverableError(f"cannot make the network namespace {path}: {error}") from None


def keep_namespace(source: str, path: Path) -> None:
    """Bind a namespace made by another process to `path`."""
    _prepare_folder(path.parent)
    try:
        _bind(source, path)
    except OSError as error:
        raise RecoverableError(f"cannot keep the network namespace {source} at {path}: {error.strerror}") from None


def remove_namespace(path: Path) -> None:
    """Unmount a namespace; the kernel removes it with its interfaces when no process is inside."""
    libc = c_library()
    while libc.umount2(os.fsencode(path), MNT_DETACH) == 0:
        pass
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(folder: Path) -> None:
    """Remove an empty folder of namespaces."""
    libc = c_library()
    while libc.umount2(os.fsencode(folder), MNT_DETACH) == 0:
        pass
    with contextlib.suppress(OSError):
        folder.rmdir()


def identity(path: Path | str) -> int:
    """The inode of the namespace at a path, unique among live namespaces; 0 without one."""
    try:
        found, own = os.stat(path), os.stat("/proc/self/ns/net")
    except OSError:
        return 0
    return found.st_ino if found.st_dev == own.st_dev else 0


def obstacle() -> str:
    """The reason why this machine cannot make namespaces; "" when it can."""
    if sys.platform != "linux":
        return "they take Linux"
    return _why_not(lambda: None)


def bridge_obstacle() -> str:
    """The reason why this machine cannot make bridges in namespaces; "" when it can."""

    def make_bridge() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            fcntl.ioctl(sock, SIOCBRADDBR, b"yurt0\0")

    return _why_not(make_bridge)


def _why_not(work: Callable[[], None]) -> str:
    def attempt() -> None:
        _unshare()
        work()

    try:
        _on_thread(attempt)
    except RecoverableError as error:
        return str(error)
    return ""


def _on_thread(work: Callable[[], None]) -> None:
    """Run work on a thread of its own; raises RecoverableError with the system's reason."""
    failures: list[OSError] = []

    def run() -> None:
        try:
            work()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="network namespace", daemon=True)
    thread.start()
    thread.join(THREAD_LIMIT_S)
    if thread.is_alive():
        raise RecoverableError(f"the kernel has not answered for {THREAD_LIMIT_S:g} s")
    if failures:
        raise RecoverableError(failures[0].strerror or str(failures[0]))


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _unshare() -> None:
    _check(c_library().unshare(CLONE_NEWNET), "unshare")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0)))
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _bind(source: str, path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
    result = c_library().mount(os.fsencode(source), os.fsencode(path), None, MS_BIND, None)
    if result != 0:
        code = ctypes.get_errno()
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise OSError(code, f"mount: {os.strerror(code)}")


def _prepare_folder(folder: Path) -> None:
    """Make the folder a shared mount, as `ip netns` does, so that unmounting reaches all mount namespaces."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    libc, name = c_library(), os.fsencode(folder)
    if libc.mount(None, name, None, MS_SHARED | MS_REC, None) == 0:
        return
    if ctypes.get_errno() != errno.EINVAL:
        return
    if libc.mount(name, name, None, MS_BIND | MS_REC, None) == 0:
        libc.mount(None, name, None, MS_SHARED | MS_REC, None)
