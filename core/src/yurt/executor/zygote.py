"""The program that starts tasks and outlives the agent: `python -I -S -E zygote.py REQUESTS REPLIES LIFE DEV`.

It runs alone: the standard library's smallest modules, no thread, nothing of yurt, so that a fork costs about a
millisecond and half a megabyte. Three processes come from this one file.

    zygote  reads requests from one pipe and forks a shim for each. It ends when the agent does (its pipe closes).
    shim    one per task: leads its own session, adopts every orphan of the task (child subreaper), copies the task's
            output into rotated files, and writes the exit file when the task has ended. It outlives agent and zygote.
            SIGTERM tells it to kill whatever is left of the task, and to end.
    task    leads a session and process group of its own, and becomes the command.

A shim answers the agent itself, on the zygote's reply pipe: small writes to a pipe are whole (PIPE_BUF). A start has
succeeded when the exec has: the task's end of a close-on-exec pipe then closes without a word.

`LIFE` is a pipe whose other end only the agent holds. In a dev run zygote and shims all watch it: when the agent is
gone, by whatever cause, each shim kills its task and the zygote removes the cgroups of the run.

Killing never follows a pid that may have been given to a stranger: a shim kills only its direct children, whose pids
stay theirs until it reaps them; their children fall to it next, and so on until it has none.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

READ_SIZE = 65536
SMALL_FILE_BYTES = 16384
DRAIN_READS_MAX = 64
KILL_LIMIT_S = 10.0
KILL_POLL_MS = 20
ERROR_TEXT_BYTES = 1024
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNET = 0x40000000
LAUNCH_LIMIT_S = 20.0
LAUNCH_POLL_S = 0.001
SIGNALS_OF_THE_TASK = range(1, 32)


def load_libc() -> ctypes.CDLL | None:
    """The C library, for prctl and setns; None where it cannot be had."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.restype = libc.setns.restype = ctypes.c_int
    except (ImportError, OSError, AttributeError):
        return None
    return libc


def become_subreaper(libc: ctypes.CDLL | None) -> None:
    """Adopt the orphans of the task; only Linux can, elsewhere they go to init."""
    if libc is not None and sys.platform == "linux":
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_NAME, b"yurt-shim", 0, 0, 0)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where there is no /proc."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def stat_fields(pid: int) -> list[bytes]:
    """What follows the name in /proc/<pid>/stat: state, parent, ... (proc(5), fields 3 and on)."""
    return (read_small(b"/proc/%d/stat" % pid) or b"").rpartition(b")")[2].split()


def read_small(path: bytes) -> bytes | None:
    """The start of a kernel file; None when it is not there."""
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
    """Write into a file that exists (a cgroup or proc file)."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def quietly(call: Callable[..., object], *arguments: object) -> None:
    """Do what may be impossible by now: the process has gone, the folder is in use, the limit is not ours to set."""
    try:
        call(*arguments)
    except OSError:
        pass


def replace_file(path: bytes, data: bytes) -> None:
    """Put a whole file in place at once; not synced, for the task would not survive a crash of the machine either."""
    temporary = path + b".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    os.rename(temporary, path)


def reply(fd: int, message: dict[str, object]) -> None:
    """Tell the agent; it may be gone."""
    data = marshal.dumps(message)
    quietly(os.write, fd, len(data).to_bytes(4, "big") + data)


class RotatedLog:
    """One output of a task in files `<base>.0`, `<base>.1` ...: the newest is written, the oldest is removed.

    A new start of the same task goes on with the newest file. Files are cut at the end of a line when there is one.
    When the disk is full, or the folder is gone, output is dropped: a log never stops a task.
    """

    def __init__(self, base: bytes, *, max_files: int, max_bytes: int) -> None:
        self.base = base
        self.max_files = max(1, max_files)
        self.max_bytes = max(1, max_bytes)
        self.index = max(self.indexes(), default=0)
        self.fd = -1
        self.size = 0
        self.open()

    def indexes(self) -> list[int]:
        """Numbers of the files that exist."""
        folder, _, name = self.base.rpartition(b"/")
        prefix = name + b"."
        tails = [entry[len(prefix) :] for entry in os.listdir(folder) if entry.startswith(prefix)]
        return [int(tail) for tail in tails if tail.isdigit()]

    def open(self) -> None:
        """Open the file of the present index for appending; a symbolic link is never followed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(self.base + b".%d" % self.index, flags, 0o644)
        self.size = os.fstat(self.fd).st_size

    def rotate(self) -> None:
        """Go on with the next file and remove those that are too old."""
        os.close(self.fd)
        self.fd = -1
        self.index += 1
        self.open()
        for old in self.indexes():
            if old <= self.index - self.max_files:
                os.unlink(self.base + b".%d" % old)

    def write(self, data: bytes) -> None:
        """Append, rotating as often as needed."""
        try:
            while data:
                if self.size >= self.max_bytes:
                    self.rotate()
                part = data[: cut(data, self.max_bytes - self.size, fresh=self.size == 0)]
                if part:
                    self.size += os.write(self.fd, part)
                    data = data[len(part) :]
                else:
                    self.rotate()
        except OSError:
            return


def cut(data: bytes, room: int, *, fresh: bool) -> int:
    """How much of `data` fits into `room`: all of it, else whole lines, else (in a fresh file) as much as there is."""
    if len(data) <= room:
        return len(data)
    line_end = data.rfind(b"\n", 0, room) + 1
    return line_end if line_end or not fresh else room


class Shim:
    """The parent of one task, from its start to the end of its last process."""

    def __init__(self, request: dict[str, Any], libc: ctypes.CDLL | None, life_fd: int) -> None:
        self.request = request
        self.libc = libc
        self.life_fd = life_fd
        self.main = 0
        self.has_children = True
        self.is_killed = False
        self.logs: dict[int, RotatedLog] = {}
        self.wake_fd, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake_fd, False)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, ignore_signal)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def start(self, reply_fd: int) -> bool:
        """Start the task and tell the agent how that went."""
        stage = "logs"
        try:
            outputs = self.open_outputs()
            self.make_cgroups()
            status_fd, child_status = os.pipe()
            stage = "fork"
            self.main = os.fork()
        except OSError as error:
            return self.fail(reply_fd, stage, error.errno or errno.EIO)
        if self.main == 0:
            become_task(self.request, self.libc, outputs=outputs, status_fd=child_status)
        for fd in {*outputs, child_status}:
            os.close(fd)
        failure = os.read(status_fd, ERROR_TEXT_BYTES)
        os.close(status_fd)
        if failure:
            failed_stage, _, code = failure.partition(b" ")
            os.waitpid(self.main, 0)
            return self.fail(reply_fd, failed_stage.decode(), int(code))
        if self.request["pid_file"] and (failed := self.adopt()):
            return self.fail(reply_fd, "launch", failed)
        answer = {"id": self.request["id"], "pid": self.main, "start": start_ticks(self.main), "at": time.time_ns()}
        reply(reply_fd, answer | {"shim": os.getpid(), "shim_start": start_ticks(os.getpid())})
        return True

    def adopt(self) -> int:
        """Wait until the launcher has ended: the child that it left us is the task. 0, or an errno."""
        launcher, deadline = self.main, time.monotonic() + LAUNCH_LIMIT_S
        ended, status = os.waitpid(launcher, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            select.select([], [], [], LAUNCH_POLL_S)
            ended, status = os.waitpid(launcher, os.WNOHANG)
        if not ended:
            os.kill(launcher, signal.SIGKILL)
            os.waitpid(launcher, 0)
            return errno.ETIMEDOUT
        self.main = int(read_small(self.request["pid_file"]) or b"0") if status == 0 else 0
        return 0 if self.main else errno.ECHILD

    def fail(self, reply_fd: int, stage: str, code: int) -> bool:
        """Clear away, and tell the agent at which stage the start failed."""
        self.remove_cgroups()
        reply(reply_fd, {"id": self.request["id"], "stage": stage, "errno": code})
        return False

    def open_outputs(self) -> tuple[int, int]:
        """The task's ends of its two outputs: pipes to the log files, or nothing at all."""
        if not self.request["stdout"]:
            null = os.open("/dev/null", os.O_WRONLY)
            return null, null
        ends = []
        for base in (self.request["stdout"], self.request["stderr"]):
            log = RotatedLog(base, max_files=self.request["max_files"], max_bytes=self.request["max_bytes"])
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self.logs[read_end] = log
            ends.append(write_end)
        return ends[0], ends[1]

    def make_cgroups(self) -> None:
        """Make the task's cgroups and set their limits, as far as the machine allows."""
        for folder, settings in self.request["cgroups"]:
            try:
                os.mkdir(folder)
            except OSError:
                continue
            for name, value in settings:
                quietly(write_file, folder + b"/" + name, value)

    def run(self) -> None:
        """Copy output and reap until nothing is left of the task."""
        poller = select.poll()
        poller.register(self.wake_fd, select.POLLIN)
        for fd in self.logs:
            poller.register(fd, select.POLLIN)
        if self.life_fd >= 0:
            poller.register(self.life_fd, 0)
        self.reap()
        while not self.is_killed and (self.has_children or self.logs):
            for fd, _ in poller.poll():
                if fd == self.wake_fd:
                    self.on_signals()
                elif fd == self.life_fd:
                    self.is_killed = True
                elif self.copy(fd) == 0:
                    poller.unregister(fd)
                    self.close_log(fd)
        if self.is_killed:
            self.kill_everything()
        self.remove_cgroups()

    def on_signals(self) -> None:
        """Children ended, or we are told to end."""
        numbers = os.read(self.wake_fd, 512)
        self.is_killed = self.is_killed or signal.SIGTERM in numbers
        self.reap()

    def reap(self) -> None:
        """Collect every ended child; the end of the main process is written down at once."""
        while self.has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                return
            if pid == self.main:
                self.main = 0
                self.write_exit(status)

    def write_exit(self, status: int) -> None:
        """Write the exit file, after the output that the task left in its pipes."""
        for fd in self.logs:
            self.drain(fd)
        is_signaled = os.WIFSIGNALED(status)
        code = 0 if is_signaled else os.WEXITSTATUS(status)
        number = os.WTERMSIG(status) if is_signaled else 0
        oom = "true" if number == signal.SIGKILL and out_of_memory(self.request["oom_file"]) else "false"
        text = '{"exit_code":%d,"signal":%d,"oom_killed":%s,"finished_at":%d}\n' % (code, number, oom, time.time_ns())
        quietly(replace_file, self.request["exit_file"], text.encode())

    def copy(self, fd: int) -> int:
        """Copy a piece of what is there: its size, 0 when nothing more will come, -1 when nothing is there now."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return -1
        self.logs[fd].write(data)
        return len(data)

    def drain(self, fd: int) -> None:
        """Copy what the pipe holds now; bounded, for an orphan may write for ever."""
        for _ in range(DRAIN_READS_MAX):
            if self.copy(fd) <= 0:
                return

    def close_log(self, fd: int) -> None:
        """An output has come to its end."""
        os.close(fd)
        log = self.logs.pop(fd)
        if log.fd >= 0:
            os.close(log.fd)

    def kill_everything(self) -> None:
        """Kill every process of the task, however deep, and wait until they are gone."""
        deadline = time.monotonic() + KILL_LIMIT_S
        poller = select.poll()
        poller.register(self.wake_fd, select.POLLIN)
        self.reap()
        while self.has_children and time.monotonic() < deadline:
            if self.main:
                quietly(os.kill, -self.main, signal.SIGKILL)
            for pid in children_of(os.getpid()) or ([self.main] if self.main else []):
                quietly(os.kill, pid, signal.SIGKILL)
            if poller.poll(KILL_POLL_MS):
                os.read(self.wake_fd, 512)
            self.reap()
        for fd in list(self.logs):
            self.drain(fd)

    def remove_cgroups(self) -> None:
        """Remove the task's cgroups; one that still holds a process stays."""
        for folder, _ in reversed(self.request["cgroups"]):
            quietly(os.rmdir, folder)


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing: the signal arrives through the wake-up pipe."""


def children_of(parent: int) -> list[int]:
    """The direct children of a process, zombies included; empty where there is no /proc."""
    listed = read_small(b"/proc/%d/task/%d/children" % (parent, parent))
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    pids = [int(entry) for entry in list_folder(b"/proc") if entry.isdigit()]
    return [pid for pid in pids if (stat_fields(pid) or [b"", b"0"])[1] == b"%d" % parent]


def out_of_memory(path: bytes) -> bool:
    """Whether the kernel killed for lack of memory, by memory.events or v1's memory.oom_control."""
    if not path:
        return False
    rows = (read_small(path) or b"").split(b"\n")
    return any(row.startswith(b"oom_kill ") and row != b"oom_kill 0" for row in rows)


def become_task(
    request: dict[str, Any], libc: ctypes.CDLL | None, *, outputs: tuple[int, int], status_fd: int
) -> NoReturn:
    """In the forked child: put everything in place and become the command, or say at which stage that failed."""
    stage = "setup"
    try:
        os.setsid()
        restore_signals()
        stage = "cgroup"
        enter_cgroups(request)
        if request["oom_score_adj"] is not None:
            stage = "oom_score_adj"
            write_file(b"/proc/self/oom_score_adj", b"%d" % request["oom_score_adj"])
        if request["netns"]:
            stage = "netns"
            enter_network(libc, request["netns"])
        stage = "user"
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
        os.write(status_fd, b"%s %d" % (stage.encode(), error.errno or errno.EIO))
    except BaseException:
        os.write(status_fd, b"%s %d" % (stage.encode(), errno.EINVAL))
    finally:
        os._exit(127)


def restore_signals() -> None:
    """Give the task every signal at its default, none blocked."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS_OF_THE_TASK:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def enter_cgroups(request: dict[str, Any]) -> None:
    """Move this process into its cgroups: those asked for by name must work, our own are entered when possible."""
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
    """Become the task's user; the ids were looked up by the agent."""
    if request["uid"] is None:
        return
    os.setgroups(request["groups"])
    os.setgid(request["gid"])
    os.setuid(request["uid"])


def execute(request: dict[str, Any]) -> None:
    """Become the first candidate that can be executed; a refusal outlasts a mere absence, as in execvp(3)."""
    refused = None
    for path in request["candidates"]:
        try:
            os.execve(path, request["argv"], request["env"])
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = refused or error
    raise refused or OSError(errno.ENOENT, "no such command")


def shim_main(request: dict[str, Any], libc: ctypes.CDLL | None, *, reply_fd: int, life_fd: int) -> NoReturn:
    """The whole life of a shim. Never returns."""
    try:
        os.setsid()
        become_subreaper(libc)
        for path in request["shim_join"]:
            quietly(write_file, path, b"0")
        shim = Shim(request, libc, life_fd)
        is_started = shim.start(reply_fd)
        os.close(reply_fd)
        if is_started:
            shim.run()
            clear_away(request)
    finally:
        os._exit(0)


def clear_away(request: dict[str, Any]) -> None:
    """Become the command that frees what the task's launcher has made; no SIGTERM may end it half way."""
    if request["at_end"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.execve(request["at_end"][0], request["at_end"], {})


class Zygote:
    """Forks shims for one agent, until the agent closes its pipe."""

    def __init__(self, *, request_fd: int, reply_fd: int, life_fd: int) -> None:
        self.request_fd = request_fd
        self.reply_fd = reply_fd
        self.life_fd = life_fd
        self.libc = load_libc()
        self.shims: set[int] = set()
        self.cgroup_parents: list[bytes] = []

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, or nothing when the agent is gone."""
        parts = []
        while size:
            part = os.read(self.request_fd, min(size, 1 << 20))
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def serve(self) -> None:
        """Answer requests until the agent is gone."""
        signal.signal(signal.SIGCHLD, self.on_child)
        reply(self.reply_fd, {"ready": os.getpid()})
        while header := self.read(4):
            body = self.read(int.from_bytes(header, "big"))
            if not body:
                return
            request = marshal.loads(body)
            if request["kind"] == "start":
                self.fork_shim(request)
            else:
                self.cgroup_parents = request["cgroup_parents"]

    def fork_shim(self, request: dict[str, Any]) -> None:
        """Start a shim; its pid stays ours until we reap it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            reply(self.reply_fd, {"id": request["id"], "stage": "fork", "errno": error.errno})
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.close(self.request_fd)
            shim_main(request, self.libc, reply_fd=self.reply_fd, life_fd=self.life_fd)
        if pid > 0:
            self.shims.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

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

    def end_run(self) -> None:
        """The agent of a dev run is gone: let the shims kill their tasks, force what stays, remove the cgroups."""
        for pid in list(self.shims):
            quietly(os.kill, pid, signal.SIGTERM)
        deadline = time.monotonic() + KILL_LIMIT_S
        while self.shims and time.monotonic() < deadline:
            select.select([], [], [], KILL_POLL_MS / 1000)
        for pid in list(self.shims):
            quietly(os.kill, pid, signal.SIGKILL)
        for parent in self.cgroup_parents:
            for entry in list_folder(parent):
                quietly(write_file, parent + b"/" + entry + b"/cgroup.kill", b"1")
                quietly(os.rmdir, parent + b"/" + entry)
            quietly(os.rmdir, parent)


def list_folder(folder: bytes) -> list[bytes]:
    """Names of what is in a folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def main() -> None:
    """Serve one agent."""
    request_fd, reply_fd, life_fd, is_dev = (int(word) for word in sys.argv[1:5])
    for fd in (request_fd, reply_fd, life_fd):
        os.set_inheritable(fd, False)
    if not is_dev:
        os.close(life_fd)
        life_fd = -1
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    zygote = Zygote(request_fd=request_fd, reply_fd=reply_fd, life_fd=life_fd)
    gc.freeze()
    zygote.serve()
    if is_dev:
        zygote.end_run()


if __name__ == "__main__":
    main()
