"""Forks shims: keeps exactly one idle shim ready for the next request.

The kernel copies each page that this process writes while shims live, once for each shim. So the loop is small, and
`warm_up` has run it before the first shim is forked. Ended shims are reaped by the kernel.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import sys
import time

from yurt.executor import shim, warm_up
from yurt.executor.system import PR_SET_NAME, children_of, list_folder, quietly, read_frame, write_file
from yurt.executor.task_child import failed_line

# The plain module: `signal` wraps every call in enums, whose pages each shim would copy.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

DEATHS_MAX = 3


class Zygote:
    """Forks shims for one agent, until the agent closes its pipe."""

    def __init__(self, ready: shim.Shim) -> None:
        self.ready = ready

    def serve(self) -> None:
        """Keep one shim ready until the agent is gone."""
        os.write(self.ready.reply_fd, b"\n")
        while self.keep_one_ready(self.ready.live, DEATHS_MAX) != shim.AGENT_HAS_ENDED:
            if not self.refuse(errno.EAGAIN):
                return

    def keep_one_ready(self, child_main: Callable[[int], NoReturn], deaths_max: int) -> bytes:
        """Fork shims until the agent has ended, or several in a row have died or could not be forked."""
        deaths = 0
        while deaths < deaths_max:
            ack_read, ack_write = os.pipe()
            try:
                pid = os.fork()
            except OSError:
                pid = -1
            if pid == 0:
                os.close(ack_read)
                child_main(ack_write)
            os.close(ack_write)
            ack = os.read(ack_read, 1)
            os.close(ack_read)
            if ack == shim.AGENT_HAS_ENDED:
                return ack
            deaths = 0 if ack else deaths + 1
        return b""

    def refuse(self, code: int) -> bool:
        """Answer the next request with a failure, because no shim can be forked; False when the agent has ended."""
        body = read_frame(self.ready.request_fd)
        if body:
            quietly(os.write, self.ready.reply_fd, failed_line(marshal.loads(body)[0], b"fork", code))
        return bool(body)


def end_run(cgroup_parents: list[bytes]) -> None:
    """After the end of a dev agent: have the shims kill their tasks, kill the rest, and remove the cgroups."""
    for pid in children_of(os.getpid()):
        quietly(os.kill, pid, signal.SIGTERM)
    deadline = time.monotonic() + shim.KILL_LIMIT_S
    while has_children() and time.monotonic() < deadline:
        select.select([], [], [], shim.KILL_POLL_MS / 1000)
    for pid in children_of(os.getpid()):
        quietly(os.kill, pid, signal.SIGKILL)
    for parent in cgroup_parents:
        for entry in list_folder(parent):
            quietly(write_file, parent + b"/" + entry + b"/cgroup.kill", b"1")
            quietly(os.rmdir, parent + b"/" + entry)
        quietly(os.rmdir, parent)


def has_children() -> bool:
    """Whether a shim is alive."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def main() -> None:
    """Serve one agent."""
    request_fd, reply_fd, lifeline_fd, is_dev = (int(word) for word in sys.argv[1:5])
    for fd in (request_fd, reply_fd, lifeline_fd):
        os.set_inheritable(fd, False)
    if not is_dev:
        os.close(lifeline_fd)
        lifeline_fd = -1
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    zygote = Zygote(shim.Shim(request_fd=request_fd, reply_fd=reply_fd, lifeline_fd=lifeline_fd))
    zygote.ready.prctl(PR_SET_NAME, b"yurt-shim", 0, 0, 0)
    warm_up.rehearse(zygote.keep_one_ready, os.fsencode(sys.argv[5]))
    gc.freeze()
    zygote.serve()
    if is_dev:
        end_run([os.fsencode(path) for path in sys.argv[6:]])
