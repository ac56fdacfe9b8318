"""The program that becomes a command alongside a task: `python -I -S -E exec_child.py REQUEST STATUS`.

It leads a session of its own already. It takes the terminal, enters the task's cgroups and network, becomes the task's
user and then the command. A failure is written to STATUS as `stage errno`; that pipe closes without data when the
command runs. When the agent dies, the command is killed, because its output has no reader.

It is a separate program, because the agent has threads and must not run Python between a fork and an exec.
"""

from __future__ import annotations

import errno
import marshal
import os
import sys

# The plain module: `signal` wraps every call in enums.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip


def stand_alone() -> None:
    """Make this folder's modules importable by name, without importing their packages."""
    for name in ("yurt", "yurt.executor"):
        package = type(sys)(name)
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
        sys.modules[name] = package


if __name__ == "__main__":
    stand_alone()

from yurt.executor import system, task_child  # noqa: E402 - the path to it was made just now

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
READ_SIZE = 65536


def main(request_fd: int, status_fd: int) -> NoReturn:
    """Become the command, or report the stage of a failure."""
    stage = "setup"
    os.set_inheritable(status_fd, False)
    try:
        request = read_request(request_fd)
        libc = system.load_libc()
        task_child.restore_signals()
        if request["is_terminal"]:
            stage = "terminal"
            take_terminal(request["uid"])
        task_child.enter_cgroups(request)
        if request["netns"]:
            stage = "netns"
            task_child.enter_network(libc, request["netns"])
        stage = "user"
        task_child.change_user(request)
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "setup"
        die_with_parent(libc, request["parent"])
        stage = "exec"
        task_child.execute(request)
    except OSError as error:
        os.write(status_fd, b"%s %d" % (stage.encode(), error.errno or errno.EIO))
    except BaseException:
        os.write(status_fd, b"%s %d" % (stage.encode(), errno.EINVAL))
    finally:
        os._exit(127)


def read_request(fd: int) -> dict[str, Any]:
    """Read the whole message in a file."""
    os.lseek(fd, 0, os.SEEK_SET)
    body = b""
    while data := os.read(fd, READ_SIZE):
        body += data
    os.close(fd)
    request: dict[str, Any] = marshal.loads(body)
    return request


def take_terminal(uid: int | None) -> None:
    """Make standard input the controlling terminal of this session, owned by the user so that it can be reopened."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if uid is not None:
        system.quietly(os.fchown, 0, uid, -1)


def die_with_parent(libc: ctypes.CDLL | None, parent: int) -> None:
    """Request SIGKILL at the agent's death, on Linux; checks that it is still alive."""
    if libc is not None and sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
