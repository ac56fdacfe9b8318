"""The steps of a shim's child before it becomes the task.

The child's writes go to pages that the exec discards; pages that the shim writes stay private for as long as the task
runs. So the child takes the start file, enters the cgroups, tries the log files, and reports the numbers that the agent
needs. It reports by a close-on-exec pipe: one line of numbers, and after that only a failure.
"""

from __future__ import annotations

import errno
import marshal
import os
import time

from yurt.executor.system import load_libc, quietly, start_ticks, write_file

# The plain module: `signal` wraps every call in enums, whose pages each shim would copy.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from yurt.executor.rotated_log import RotatedLog

CLONE_NEWNET = 0x40000000
SIGNALS_OF_THE_TASK = range(1, 32)
FAILURE = b"!"
"""The prefix of a failure's stage and error number."""


def become_task(
    task: bytes, *, start_fd: int, outputs: tuple[int, int], status_fd: int, logs: Iterable[RotatedLog]
) -> NoReturn:
    """Prepare the forked child and become the command, or report the stage of a failure."""
    stage = "claim"
    try:
        request = marshal.loads(task)
        claim(request, start_fd)
        stage = "logs"
        for log in logs:
            log.open_newest()
        stage = "setup"
        enter_shims_cgroup(request)
        make_cgroups(request)
        os.setsid()
        restore_signals()
        stage = "cgroup"
        enter_cgroups(request)
        if request["oom_score_adj"] is not None:
            stage = "oom_score_adj"
            write_file(b"/proc/self/oom_score_adj", b"%d" % request["oom_score_adj"])
        if request["netns"]:
            stage = "netns"
            enter_network(load_libc(), request["netns"])
        stage = "user"
        os.write(status_fd, started_line(request["id"], main=os.getpid(), shim=os.getppid()))
        change_user(request)
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "setup"
        null = os.open("/dev/null", os.O_RDONLY)
        for target, fd in enumerate((null, *outputs)):
            os.dup2(fd, target)
        stage = "exec"
        execute(request)
    except OSError as error:
        os.write(status_fd, FAILURE + b"%s %d" % (stage.encode(), error.errno or errno.EIO))
    except BaseException:
        os.write(status_fd, FAILURE + b"%s %d" % (stage.encode(), errno.EINVAL))
    finally:
        os._exit(127)


def claim(request: dict[str, Any], start_fd: int) -> None:
    """Claim the task for this shim by renaming its file; raises OSError when another shim or the agent was first."""
    shim = os.getppid()
    os.write(start_fd, b"%d %d\n" % (shim, start_ticks(shim)))
    os.rename(request["asked_file"], request["start_file"])


def started_line(request_id: int, *, main: int, shim: int) -> bytes:
    """A success answer: its request, pid and start ticks of the task, the time (ns), pid and ticks of the shim."""
    numbers = (request_id, main, start_ticks(main), time.time_ns(), shim, start_ticks(shim))
    return b"%d %d %d %d %d %d\n" % numbers


def failed_line(request_id: int, stage: bytes, code: int) -> bytes:
    """A failure answer: its request, the stage and the error number."""
    return b"%d %s%s %d\n" % (request_id, FAILURE, stage, code)


def enter_shims_cgroup(request: dict[str, Any]) -> None:
    """Move the shim and this process out of the agent's cgroup, so that they outlive it."""
    for path in request["shim_join"]:
        quietly(write_file, path, b"%d" % os.getppid())
        quietly(write_file, path, b"0")


def make_cgroups(request: dict[str, Any]) -> None:
    """Create the task's cgroups and set their limits, as far as permitted."""
    for folder, settings in request["cgroups"]:
        try:
            os.mkdir(folder)
        except OSError:
            continue
        for name, value in settings:
            quietly(write_file, folder + b"/" + name, value)


def restore_signals() -> None:
    """Reset every signal to its default, none blocked."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS_OF_THE_TASK:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def enter_cgroups(request: dict[str, Any]) -> None:
    """Move this process into its cgroups: failures count for those requested by name, not for our own."""
    for path in request["join"]:
        quietly(write_file, path, b"0")
    for path in request["must_join"]:
        write_file(path, b"0")


def enter_network(libc: ctypes.CDLL | None, path: bytes) -> None:
    """Enter a network namespace."""
    if libc is None:
        raise OSError(errno.ENOSYS, "no C library")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        import ctypes

        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


def change_user(request: dict[str, Any]) -> None:
    """Change to the task's user; the agent has looked up the ids."""
    if request["uid"] is None:
        return
    os.setgroups(request["groups"])
    os.setgid(request["gid"])
    os.setuid(request["uid"])


def execute(request: dict[str, Any]) -> None:
    """Execute the first possible candidate; a permission error takes precedence over a missing file: execvp(3)."""
    refused = None
    for path in request["candidates"]:
        try:
            os.execve(path, request["argv"], request["env"])
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = refused or error
    raise refused or OSError(errno.ENOENT, "no such command")
