"""Makes the Unix socket of a task in its secrets directory. Blocking.

The directory belongs to the task's user, who may put links and other files into it at any time, and an earlier run may
have left some. So the socket is bound and made accessible in a folder that only the agent's user may enter, through its
descriptor, and then renamed to its final path, which replaces any file there and follows no link. Paths through a
descriptor are also short: a socket's path is limited to 107 bytes, and directories of allocations may be deeper.
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
from yurt.sdk.opening import hold

SOCKET: Final = "api.sock"
MODE: Final = 0o666
"""Open for all: only the task's user can enter the directory, and each request must also show a token."""
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def bind_socket(dirs: TaskDirs, *, user: str = "") -> socket.socket:
    """A socket bound in the task's secrets directory, owned by the task's user; raises OSError or Invalid."""
    owner = ids_of(user)
    task_dir = os.path.relpath(dirs.secrets_dir, dirs.alloc_dir)
    folder_fd = hold(dirs.alloc_dir, task_dir)
    name = f".api-{secrets.token_hex(8)}"
    try:
        os.mkdir(name, 0o700, dir_fd=folder_fd)
        try:
            return _bound(folder_fd, name, owner)
        finally:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)


def _bound(folder_fd: int, name: str, owner: tuple[int, int] | None) -> socket.socket:
    """Bind in the folder `name`, which no other user may enter, and move the socket to its final path."""
    folder = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            raise OSError(f"{name} was replaced while the socket was made")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(f"/proc/self/fd/{folder}/{SOCKET}")
            os.chmod(SOCKET, MODE, dir_fd=folder)
            if owner is not None:
                os.chown(SOCKET, *owner, dir_fd=folder, follow_symlinks=False)
            os.rename(SOCKET, SOCKET, src_dir_fd=folder, dst_dir_fd=folder_fd)
        except BaseException:
            listening.close()
            with contextlib.suppress(OSError):
                os.unlink(SOCKET, dir_fd=folder)
            raise
        return listening
    finally:
        os.close(folder)
