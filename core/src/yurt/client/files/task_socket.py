"""Makes the Unix socket of a task in its secrets directory. Blocking.

The directory belongs to the task's user, who may put links and other files into it at any time, and root of a container
may enter whatever the agent makes in it. So after the socket is bound, its mode and owner are changed through a
descriptor that is checked first, and it is then renamed to its final path, which replaces any file there and follows no
link. Paths through a descriptor are also short: a socket's path is limited to 107 bytes, and directories of allocations
may be deeper.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from typing import Final

from yurt.client.files.users import ids_of
from yurt.sdk.driver import TaskDirs
from yurt.sdk.opening import HOLD_FLAGS, hold

SOCKET: Final = "api.sock"
MODE: Final = 0o666
"""Open for all: only the task's user can enter the directory, and each request must also show a token."""


def bind_socket(dirs: TaskDirs, *, user: str = "") -> socket.socket:
    """A socket bound in the task's secrets directory, owned by the task's user; raises OSError or Invalid."""
    owner = ids_of(user)
    task_dir = os.path.relpath(dirs.secrets_dir, dirs.alloc_dir)
    folder = hold(dirs.alloc_dir, task_dir)
    try:
        return _bound(folder, f".api-{secrets.token_hex(8)}", owner)
    finally:
        os.close(folder)


def _bound(folder: int, name: str, owner: tuple[int, int] | None) -> socket.socket:
    """Bind at `name` in the open folder, and move the socket to its final path."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(f"/proc/self/fd/{folder}/{name}")
        _give(folder, name, owner)
        os.rename(name, SOCKET, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        listening.close()
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    return listening


def _give(folder: int, name: str, owner: tuple[int, int] | None) -> None:
    """Open the socket for its users. What the task has put in its place is left as it is: OSError is raised."""
    held = os.open(name, HOLD_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    try:
        found = os.fstat(held)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise OSError(f"{name} was replaced while the socket was made")
        os.chmod(f"/proc/self/fd/{held}", MODE)
        if owner is not None:
            os.chown(f"/proc/self/fd/{held}", *owner)
    finally:
        os.close(held)
