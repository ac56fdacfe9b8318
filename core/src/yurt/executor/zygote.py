"""The program that starts tasks: `python -I -S -E zygote.py REQUESTS REPLIES LIFE DEV FOLDER [CGROUP_PARENT ...]`.

It runs alone: the standard library's smallest modules, no thread, nothing of yurt but the shim's file, so that a fork
costs a millisecond and half a megabyte. It forks one shim ahead of need and does nothing until that one has taken a
request. It ends when the agent does (the pipe of requests closes).

`LIFE` is a pipe whose other end only the agent holds. In a dev run zygote and shims all watch it: when the agent is
gone, by whatever cause, each shim kills its task and the zygote removes the cgroups of the run.

What is written here while shims live is copied by the kernel once a page and shim: the loop is small for that reason.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import sys
import time

# The plain module: `signal` wraps every call in enums, whose pages each shim would copy.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip


def stand_alone() -> None:
    """Make this folder's modules importable by their names, without what their packages would import as well."""
    for name in ("yurt", "yurt.executor"):
        package = type(sys)(name)
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
        sys.modules[name] = package


if __name__ == "__main__":
    stand_alone()

from yurt.executor import shim  # noqa: E402 - the path to it was made just now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

DEATHS_MAX = 3


class Zygote:
    """Forks shims for one agent, until the agent closes its pipe."""

    def __init__(self, *, request_fd: int, reply_fd: int, life_fd: int) -> None:
        self.request_fd = request_fd
        self.reply_fd = reply_fd
        self.life_fd = life_fd
        self.libc = shim.load_libc()
        self.shims: set[int] = set()
        self.deaths = 0

    def serve(self) -> None:
        """Keep one shim ready until the agent is gone."""
        signal.signal(signal.SIGCHLD, self.on_child)
        shim.reply(self.reply_fd, ())
        while (told := self.prepare()) != shim.AGENT_IS_GONE:
            self.deaths = 0 if told == shim.TAKEN else self.deaths + 1
            if self.deaths >= DEATHS_MAX and not self.refuse(errno.EAGAIN):
                return

    def prepare(self) -> bytes:
        """Fork a shim and wait for what becomes of it: nothing when it died, or could not be forked."""
        tell_read, tell_write = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            os.close(tell_read)
            shim.shim_main(
                self.libc,
                request_fd=self.request_fd,
                reply_fd=self.reply_fd,
                tell_fd=tell_write,
                life_fd=self.life_fd,
            )
        os.close(tell_write)
        if pid > 0:
            self.shims.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        told = os.read(tell_read, 1)
        os.close(tell_read)
        return told

    def refuse(self, code: int) -> bool:
        """Answer the next request without a shim, for none can be had; False when the agent is gone."""
        body = shim.read_frame(self.request_fd)
        if body:
            shim.reply(self.reply_fd, (marshal.loads(body)[0], b"fork", code))
        return bool(body)

    def on_child(self, _number: int, _frame: FrameType | None) -> None:
        """Reap ended shims."""
        while self.shims:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.shims.discard(pid)

    def end_run(self, cgroup_parents: list[bytes]) -> None:
        """The agent of a dev run is gone: let the shims kill their tasks, force what stays, remove the cgroups."""
        for pid in list(self.shims):
            shim.quietly(os.kill, pid, signal.SIGTERM)
        deadline = time.monotonic() + shim.KILL_LIMIT_S
        while self.shims and time.monotonic() < deadline:
            select.select([], [], [], shim.KILL_POLL_MS / 1000)
        for pid in list(self.shims):
            shim.quietly(os.kill, pid, signal.SIGKILL)
        for parent in cgroup_parents:
            for entry in shim.list_folder(parent):
                shim.quietly(shim.write_file, parent + b"/" + entry + b"/cgroup.kill", b"1")
                shim.quietly(os.rmdir, parent + b"/" + entry)
            shim.quietly(os.rmdir, parent)


def main() -> None:
    """Serve one agent."""
    request_fd, reply_fd, life_fd, is_dev = (int(word) for word in sys.argv[1:5])
    for fd in (request_fd, reply_fd, life_fd):
        os.set_inheritable(fd, False)
    if not is_dev:
        os.close(life_fd)
        life_fd = -1
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    zygote = Zygote(request_fd=request_fd, reply_fd=reply_fd, life_fd=life_fd)
    shim.rehearse(zygote.libc, os.fsencode(sys.argv[5]))
    gc.freeze()
    zygote.serve()
    if is_dev:
        zygote.end_run([os.fsencode(path) for path in sys.argv[6:]])


if __name__ == "__main__":
    main()
