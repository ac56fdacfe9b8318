"""The life of a shim, from its fork by the zygote to the end of the last process of its task.

    shim    one per task: leads its own session, adopts every orphan of the task (child subreaper), copies the task's
            output into rotated files, and writes the exit file when the task has ended. It outlives agent and zygote.
            SIGTERM tells it to kill whatever is left of the task, and to end.
    task    leads a session and process group of its own, and becomes the command.

A shim is forked before there is a task for it, and takes the next request from the agent's pipe itself: what it costs
to be ready is then paid before anyone waits, and what it costs to read a request dirties no page of the zygote, which
would be copied once for each task. Every page that a shim writes is memory of its own (a reference count is a write):
hence the plain code, and no module that can be spared.

It answers the agent itself, on the zygote's reply pipe: small writes to a pipe are whole (PIPE_BUF). A start has
succeeded when the exec has: the task's end of a close-on-exec pipe then closes without a word.

Killing never follows a pid that may have been given to a stranger: a shim kills only its direct children, whose pids
stay theirs until it reaps them; their children fall to it next, and so on until it has none.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import sys
import time

from yurt.executor.rotated_log import RotatedLog

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
KILLED_CODE = 137
"""How a shell, or runc, tells that what it waited for was killed: 128 and SIGKILL."""
ERROR_TEXT_BYTES = 1024
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNET = 0x40000000
PLAIN = 2
"""The version of `marshal` that looks for no object twice, which would write to all of them."""
TAKEN, AGENT_IS_GONE = b"t", b"e"
LAUNCH_LIMIT_S = 20.0
LAUNCH_POLL_S = 0.001
SIGNALS_OF_THE_TASK = range(1, 32)
REHEARSALS = 12


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


def read_frame(fd: int) -> bytes:
    """One message of the agent, as its length (4 bytes, big endian) says; nothing when the agent is gone."""
    header = read_exactly(fd, 4)
    return read_exactly(fd, int.from_bytes(header, "big")) if header else b""


def read_exactly(fd: int, size: int) -> bytes:
    """Exactly `size` bytes, or nothing when the agent is gone."""
    data = os.read(fd, min(size, READ_SIZE))
    while 0 < len(data) < size:
        part = os.read(fd, min(size - len(data), READ_SIZE))
        if not part:
            return b""
        data += part
    return data


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


def reply(fd: int, message: tuple[int | bytes, ...]) -> None:
    """Tell the agent; it may be gone."""
    data = marshal.dumps(message, PLAIN)
    quietly(os.write, fd, len(data).to_bytes(4, "big") + data)


class Shim:
    """The parent of one task, from its start to the end of its last process."""

    def __init__(self, libc: ctypes.CDLL | None, life_fd: int) -> None:
        self.libc = libc
        self.life_fd = life_fd
        self.id = self.max_files = self.max_bytes = 0
        self.stdout = self.stderr = self.exit_file = self.oom_file = self.pid_file = self.task = b""
        self.asked_file = self.start_file = b""
        self.start_fd = -1
        self.cgroups: list[tuple[bytes, list[tuple[bytes, bytes]]]] = []
        self.shim_join: list[bytes] = []
        self.at_end: list[bytes] = []
        self.main = 0
        self.has_children = True
        self.is_killed = False
        self.logs: dict[int, RotatedLog] = {}
        self.wake_fd, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_fd, False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, ignore_signal)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def take_request(self, request_fd: int, tell_fd: int) -> bool:
        """Wait for a request and tell the zygote; False when agent or zygote is gone, or we are told to end."""
        poller = select.poll()
        poller.register(request_fd, select.POLLIN)
        poller.register(tell_fd, 0)
        poller.register(self.wake_fd, select.POLLIN)
        fd, event = poller.poll()[0]
        body = read_frame(request_fd) if fd == request_fd and event & select.POLLIN else b""
        if not body:
            quietly(os.write, tell_fd, AGENT_IS_GONE if fd == request_fd else b"")
            return False
        os.write(tell_fd, TAKEN)
        os.close(tell_fd)
        os.close(request_fd)
        (
            self.id, self.stdout, self.stderr, self.max_files, self.max_bytes, self.asked_file, self.start_file,
            self.exit_file, self.cgroups, self.shim_join, self.oom_file, self.pid_file, self.at_end, self.task,
        ) = marshal.loads(body)  # fmt: skip
        return True

    def claim(self) -> None:
        """Take the task, by taking its file; raises OSError when that is gone, for then another may start the task."""
        fd = os.open(self.asked_file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        shim = os.getpid()
        os.write(fd, b"%d %d\n" % (shim, start_ticks(shim)))
        os.rename(self.asked_file, self.start_file)
        self.start_fd = fd

    def enter_cgroup(self) -> None:
        """Leave the agent's cgroup, whose end must not be ours."""
        for path in self.shim_join:
            quietly(write_file, path, b"0")

    def start(self, reply_fd: int) -> bool:
        """Start the task and tell the agent how that went."""
        stage = "claim"
        try:
            self.claim()
            stage = "logs"
            outputs = self.open_outputs()
            self.make_cgroups()
            status_fd, child_status = os.pipe()
            stage = "fork"
            self.main = os.fork()
        except OSError as error:
            return self.fail(reply_fd, stage, error.errno or errno.EIO)
        if self.main == 0:
            become_task(self.task, self.libc, outputs=outputs, status_fd=child_status)
        for fd in {*outputs, child_status}:
            os.close(fd)
        failure = os.read(status_fd, ERROR_TEXT_BYTES)
        os.close(status_fd)
        if failure:
            failed_stage, _, code = failure.partition(b" ")
            os.waitpid(self.main, 0)
            return self.fail(reply_fd, failed_stage.decode(), int(code))
        if self.pid_file and (failed := self.adopt()):
            return self.fail(reply_fd, "launch", failed)
        self.tell_started(reply_fd)
        return True

    def tell_started(self, reply_fd: int) -> None:
        """Tell the agent, and any later one, which processes there are now."""
        shim, started, at = os.getpid(), start_ticks(self.main), time.time_ns()
        quietly(os.write, self.start_fd, b"%d %d %d\n" % (self.main, started, at))
        quietly(os.close, self.start_fd)
        reply(reply_fd, (self.id, self.main, started, at, shim, start_ticks(shim)))

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
        self.main = int(read_small(self.pid_file) or b"0") if status == 0 else 0
        return 0 if self.main else errno.ECHILD

    def fail(self, reply_fd: int, stage: str, code: int) -> bool:
        """Clear away, and tell the agent at which stage the start failed."""
        self.remove_cgroups()
        if self.start_fd >= 0:
            quietly(os.unlink, self.start_file)
        reply(reply_fd, (self.id, stage.encode(), code))
        return False

    def open_outputs(self) -> tuple[int, int]:
        """The task's ends of its two outputs: pipes to the log files, or nothing at all."""
        if not self.stdout:
            null = os.open("/dev/null", os.O_WRONLY)
            return null, null
        ends = []
        for base in (self.stdout, self.stderr):
            log = RotatedLog(base, max_files=self.max_files, max_bytes=self.max_bytes)
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self.logs[read_end] = log
            ends.append(write_end)
        return ends[0], ends[1]

    def make_cgroups(self) -> None:
        """Make the task's cgroups and set their limits, as far as the machine allows."""
        for folder, settings in self.cgroups:
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
        is_killed = number == signal.SIGKILL or code == KILLED_CODE
        oom = "true" if is_killed and out_of_memory(self.oom_file) else "false"
        text = '{"exit_code":%d,"signal":%d,"oom_killed":%s,"finished_at":%d}\n' % (code, number, oom, time.time_ns())
        quietly(replace_file, self.exit_file, text.encode())

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
        self.logs.pop(fd).close()

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
        for folder, _ in reversed(self.cgroups):
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


def become_task(task: bytes, libc: ctypes.CDLL | None, *, outputs: tuple[int, int], status_fd: int) -> NoReturn:
    """In the forked child: put everything in place and become the command, or say at which stage that failed."""
    stage = "setup"
    try:
        request = marshal.loads(task)
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


def shim_main(libc: ctypes.CDLL | None, *, request_fd: int, reply_fd: int, tell_fd: int, life_fd: int) -> NoReturn:
    """The whole life of a shim, which starts with SIGCHLD blocked. Never returns."""
    try:
        os.setsid()
        become_subreaper(libc)
        shim = Shim(libc, life_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if shim.take_request(request_fd, tell_fd):
            shim.enter_cgroup()
            is_started = shim.start(reply_fd)
            os.close(reply_fd)
            if is_started:
                shim.run()
                clear_away(shim.at_end)
    finally:
        os._exit(0)


def rehearse(libc: ctypes.CDLL | None, folder: bytes) -> None:
    """Start and end tasks in the zygote itself, so that what the interpreter keeps about code that has run (caches,
    specialised instructions) is written before the forks, and shared by them."""
    base = folder + b"/rehearsal-%d" % os.getpid()
    none = b"/proc/self/none"
    task: dict[str, Any] = {
        "argv": [b"/"],
        "candidates": [b"/"],
        "env": {},
        "cwd": b"/",
        "join": [none],
        "must_join": [],
    }
    task |= {"oom_score_adj": None, "netns": b"", "uid": None}
    fields: tuple[Any, ...] = (
        0,
        base,
        base,
        1,
        READ_SIZE,
        base + b".asked",
        base + b".start",
        none,
        [(none, [(none, b"0")])],
        [none],
        b"",
        b"",
        [],
        marshal.dumps(task),
    )
    body = marshal.dumps(fields)
    null = os.open(b"/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for _ in range(REHEARSALS):
        request_read, request_write = os.pipe()
        tell_read, tell_write = os.pipe()
        os.close(os.open(base + b".asked", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.write(request_write, len(body).to_bytes(4, "big") + body)
        become_subreaper(libc)
        shim = Shim(libc, -1)
        shim.take_request(request_read, tell_write)
        shim.enter_cgroup()
        shim.start(null)
        shim.tell_started(null)
        shim.run()
        signal.set_wakeup_fd(-1)
        for fd in (request_write, tell_read, shim.wake_fd, shim.wake_write):
            os.close(fd)
    os.close(null)
    quietly(os.unlink, base + b".0")


def clear_away(command: list[bytes]) -> None:
    """Run the command that frees what the task's launcher has made; apart, for a SIGTERM must not end it half way."""
    if not command:
        return
    if os.fork() == 0:
        os.setsid()
        os.execve(command[0], command, {})
    os.wait()


def list_folder(folder: bytes) -> list[bytes]:
    """Names of what is in a folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
