"""A shim's run, from its fork by the zygote to the end of the last process of its task.

    shim    one per task: leads its own session, adopts every orphan of the task (child subreaper), copies the task's
            output into rotated files, and writes the exit file when the task has ended. It outlives agent and zygote.
            At SIGTERM it kills the remaining processes of the task, and ends.
    task    leads a session and process group of its own, and becomes the command.

A shim is forked before there is a task for it, and reads the next request from the agent's pipe itself. So its fork
does not delay a start, and reading a request writes to no page of the zygote, which the kernel would copy once for each
task. Every page that a shim writes is private memory for as long as its task runs (a reference count is a write): hence
the plain code, the few modules, and the rule that the shim leaves all work to its child on the way to the command
(`task_child`) or until it is needed.

It answers the agent itself, on the zygote's reply pipe: small writes to a pipe are atomic (PIPE_BUF). A start has
succeeded when the exec has: the task's end of a close-on-exec pipe then closes without a failure message.

From before its task starts until its last process has ended, a shim holds a lock on the task's directory. The lock
proves that the task lives, even without the agent's records, and so prevents a second one.

A kill never uses a pid that may have been reused: a shim kills only its direct children, whose pids remain theirs until
it reaps them. Their children are then reparented to it and killed next, until none is left.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import select
import time

from yurt.executor.rotated_log import RotatedLog
from yurt.executor.system import (
    PR_SET_CHILD_SUBREAPER,
    READ_SIZE,
    WAKE_FLAGS,
    children_of,
    load_prctl,
    quietly,
    read_frame,
    read_small,
    replace_file,
    wake_pipe,
)
from yurt.executor.task_child import FAILURE, become_task, failed_line, started_line

# The plain module: `signal` wraps every call in enums, whose pages each shim would copy.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

DRAIN_READS_MAX = 64
KILL_LIMIT_S = 10.0
KILL_POLL_MS = 20
KILLED_CODE = 137
"""The exit code by which a shell or runc reports a killed process: 128 and SIGKILL."""
ERROR_TEXT_BYTES = 1024
ACCEPTED, AGENT_HAS_ENDED = b"t", b"e"
LAUNCH_LIMIT_S = 20.0
LAUNCH_POLL_S = 0.001


class Shim:
    """The parent of one task, from its start to the end of its last process.

    The zygote makes one, which its children take over as it is: what they need not make they do not write.
    """

    def __init__(self, *, request_fd: int, reply_fd: int, lifeline_fd: int) -> None:
        self.request_fd = request_fd
        self.reply_fd = reply_fd
        self.lifeline_fd = lifeline_fd
        self.wake_fd = -1
        self.prctl = load_prctl()
        self.poller = select.poll()
        self.id = 0
        self.start_file = self.end = b""
        self.start_fd = -1
        self.main = 0
        self.has_forked = False
        self.has_children = True
        self.is_killed = False
        self.logs: dict[int, RotatedLog] = {}

    def live(self, ack_fd: int) -> NoReturn:
        """The complete run of a shim, in the forked child."""
        try:
            os.setsid()
            self.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            self.watch_signals()
            if body := self.take_request(ack_fd):
                is_started = self.start(body)
                body = b""
                os.close(self.reply_fd)
                if is_started:
                    self.run()
                    self.clear_away()
        finally:
            os._exit(0)

    def watch_signals(self) -> None:
        """Deliver signals through a pipe."""
        self.wake_fd, wake_write = wake_pipe(WAKE_FLAGS)
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.signal(signal.SIGTERM, ignore_signal)
        signal.set_wakeup_fd(wake_write)
        self.poller.register(self.wake_fd, select.POLLIN)

    def take_request(self, ack_fd: int) -> bytes:
        """Wait for a request and notify the zygote; None when agent or zygote is gone, or at a termination signal."""
        request_fd = self.request_fd
        self.poller.register(request_fd, select.POLLIN)
        self.poller.register(ack_fd, 0)
        fd, event = self.poller.poll()[0]
        body = read_frame(request_fd) if fd == request_fd and event & select.POLLIN else b""
        if not body:
            quietly(os.write, ack_fd, AGENT_HAS_ENDED if fd == request_fd else b"")
            return b""
        os.write(ack_fd, ACCEPTED)
        self.poller.unregister(ack_fd)
        self.poller.unregister(request_fd)
        os.close(ack_fd)
        os.close(request_fd)
        return body

    def start(self, body: bytes) -> bool:
        """Start the task of a request (`spec.encode_start`) and report the outcome to the agent."""
        # Only fields that are needed after the start are kept: the others are freed when this returns.
        (
            self.id, stdout, stderr, max_files, max_bytes, request_file, self.start_file, pid_file, task, self.end,
            lock_folder,
        ) = marshal.loads(body)  # fmt: skip
        stage = b"lock"
        try:
            if lock_folder:
                fcntl.flock(os.open(lock_folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
            stage = b"claim"
            self.start_fd = os.open(request_file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            stage = b"logs"
            outputs = self.open_outputs(stdout, stderr, max_files=max_files, max_bytes=max_bytes)
            stage = b"fork"
            report_fd, status_fd = os.pipe()
            self.main = os.fork()
        except OSError as error:
            return self.fail(stage, error.errno or errno.EIO)
        if self.main == 0:
            become_task(task, start_fd=self.start_fd, outputs=outputs, status_fd=status_fd, logs=self.logs.values())
        self.has_forked = True
        for fd in {*outputs, status_fd}:
            os.close(fd)
        line = os.read(report_fd, ERROR_TEXT_BYTES)
        line += os.read(report_fd, ERROR_TEXT_BYTES)
        os.close(report_fd)
        if FAILURE in line:
            os.waitpid(self.main, 0)
            stage, code = line.partition(FAILURE)[2].split()
            return self.fail(stage, int(code))
        if pid_file:
            if failed := self.adopt(pid_file):
                return self.fail(b"launch", failed)
            line = b""
        self.report_started(line or started_line(self.id, main=self.main, shim=os.getpid()))
        return True

    def report_started(self, line: bytes) -> None:
        """Report the present processes to the agent and record them for later ones."""
        quietly(os.write, self.start_fd, line)
        quietly(os.write, self.reply_fd, line)
        os.close(self.start_fd)

    def adopt(self, pid_file: bytes) -> int:
        """Wait for the launcher's end; the child that it leaves is the task. Returns 0 or an errno."""
        launcher, deadline = self.main, time.monotonic() + LAUNCH_LIMIT_S
        ended, status = os.waitpid(launcher, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            select.select([], [], [], LAUNCH_POLL_S)
            ended, status = os.waitpid(launcher, os.WNOHANG)
        if not ended:
            os.kill(launcher, signal.SIGKILL)
            os.waitpid(launcher, 0)
            return errno.ETIMEDOUT
        self.main = int(read_small(pid_file) or b"0") if status == 0 else 0
        return 0 if self.main else errno.ECHILD

    def fail(self, stage: bytes, code: int) -> bool:
        """Clean up and report the stage of the failure to the agent."""
        self.remove_cgroups()
        if self.has_forked and stage != b"claim":
            quietly(os.unlink, self.start_file)
        quietly(os.write, self.reply_fd, failed_line(self.id, stage, code))
        return False

    def open_outputs(self, stdout: bytes, stderr: bytes, *, max_files: int, max_bytes: int) -> tuple[int, int]:
        """The task's ends of its outputs: pipes to the log files, or /dev/null."""
        if not stdout:
            null = os.open("/dev/null", os.O_WRONLY)
            return null, null
        ends = []
        for base in (stdout, stderr):
            log = RotatedLog(base, max_files=max_files, max_bytes=max_bytes)
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self.logs[read_end] = log
            ends.append(write_end)
        return ends[0], ends[1]

    def run(self) -> None:
        """Copy output and reap children until no process of the task is left."""
        poller = self.poller
        for fd in self.logs:
            poller.register(fd, select.POLLIN)
        if self.lifeline_fd >= 0:
            poller.register(self.lifeline_fd, 0)
        self.reap()
        while not self.is_killed and (self.has_children or self.logs):
            for fd, _ in poller.poll():
                if fd == self.wake_fd:
                    self.on_signals()
                elif fd == self.lifeline_fd:
                    self.is_killed = True
                elif self.copy(fd) == 0:
                    poller.unregister(fd)
                    self.close_log(fd)
        if self.is_killed:
            self.kill_everything()
        self.remove_cgroups()

    def on_signals(self) -> None:
        """Handle ended children and termination signals."""
        numbers = os.read(self.wake_fd, 512)
        self.is_killed = self.is_killed or signal.SIGTERM in numbers
        self.reap()

    def reap(self) -> None:
        """Collect every ended child; the end of the main process is recorded at once."""
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
        """Write the exit file, after the remaining output in the pipes."""
        for fd in self.logs:
            self.drain(fd)
        is_signaled = os.WIFSIGNALED(status)
        code = 0 if is_signaled else os.WEXITSTATUS(status)
        number = os.WTERMSIG(status) if is_signaled else 0
        is_killed = number == signal.SIGKILL or code == KILLED_CODE
        exit_file, oom_file, _, _ = marshal.loads(self.end)
        oom = "true" if is_killed and out_of_memory(oom_file) else "false"
        text = '{"exit_code":%d,"signal":%d,"oom_killed":%s,"finished_at":%d}\n' % (code, number, oom, time.time_ns())
        quietly(replace_file, exit_file, text.encode())

    def copy(self, fd: int) -> int:
        """Copy available output: its size, 0 at the end, -1 when none is available now."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return -1
        self.logs[fd].write(data)
        return len(data)

    def drain(self, fd: int) -> None:
        """Drain the pipe, up to a bound, since an orphan may write without end."""
        for _ in range(DRAIN_READS_MAX):
            if self.copy(fd) <= 0:
                return

    def close_log(self, fd: int) -> None:
        """Close an output that has ended."""
        os.close(fd)
        self.logs.pop(fd).close()

    def kill_everything(self) -> None:
        """Kill every process of the task, including descendants, and wait until they are gone."""
        deadline = time.monotonic() + KILL_LIMIT_S
        poller = select.poll()
        poller.register(self.wake_fd, select.POLLIN)
        self.reap()
        while self.has_children and time.monotonic() < deadline:
            # The process group first: most processes of a task are in it, and one signal reaches all of them at once.
            if self.main:
                quietly(os.kill, -self.main, signal.SIGKILL)
            # Then the direct children, round after round: each round's orphans are reparented to this shim (subreaper).
            for pid in children_of(os.getpid()) or ([self.main] if self.main else []):
                quietly(os.kill, pid, signal.SIGKILL)
            if poller.poll(KILL_POLL_MS):
                os.read(self.wake_fd, 512)
            self.reap()
        for fd in list(self.logs):
            self.drain(fd)

    def remove_cgroups(self) -> None:
        """Remove the task's cgroups, except those with a process."""
        for folder in reversed(marshal.loads(self.end)[2]):
            quietly(os.rmdir, folder)

    def clear_away(self) -> None:
        """Run the command that frees the launcher's resources, in its own session so that a SIGTERM does not end it."""
        command = marshal.loads(self.end)[3]
        if not command:
            return
        if os.fork() == 0:
            os.setsid()
            os.execve(command[0], command, {})
        os.wait()


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal arrives through the wake-up pipe."""


def out_of_memory(path: bytes) -> bool:
    """Whether the kernel killed for lack of memory, from memory.events or v1's memory.oom_control."""
    if not path:
        return False
    rows = (read_small(path) or b"").split(b"\n")
    return any(row.startswith(b"oom_kill ") and row != b"oom_kill 0" for row in rows)
