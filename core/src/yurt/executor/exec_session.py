"""Runs a command alongside a task, connected to the agent by pipes or a terminal.

The command leads a session of its own. Closing the exec session before the command has ended kills it: first SIGHUP, as
when a terminal is closed, then, after a moment, SIGKILL to every process of its session. Processes that have left the
session, and those that the command leaves behind at its own end, stay in the task's cgroups and end with the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import marshal
import os
import signal
import struct
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from yurt.executor import process_identity
from yurt.executor.process_context import EXEC_OUTPUT_BYTES_MAX
from yurt.executor.spec import UserIds, candidates, search_path
from yurt.executor.streams import Input, Outputs
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, ExecSession, TerminalSize
from yurt.sdk.value import NANOSECONDS, Duration

PROGRAM = Path(__file__).with_name("exec_child.py")
START_LIMIT_S = 20.0
HANGUP_S = 0.5
KILL_LIMIT_S = 2.0
STATUS_BYTES = 256
END_OF_INPUT = b"\x04"
DEFAULT_TERM = "xterm"
SIZE_MAX = 0xFFFF


class ExecContext(NamedTuple):
    """The context of a command: environment, folder, user, cgroups, and optionally a network namespace's file."""

    env: Mapping[str, str]
    cwd: str
    user: UserIds | None = None
    cgroups: tuple[str, ...] = ()
    network_namespace: str = ""
    search: tuple[str, ...] = ()


class _WatchedProtocol(asyncio.SubprocessProtocol):
    """Reports the end of a process."""

    def __init__(self, ended: asyncio.Future[int]) -> None:
        self._ended = ended
        self.transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's is one by its methods alone

    def process_exited(self) -> None:
        assert self.transport is not None
        code = self.transport.get_returncode() or 0
        if not self._ended.done():
            self._ended.set_result(code if code >= 0 else 128 - code)


class Ends(NamedTuple):
    """The agent's and the command's ends of its streams; a terminal has a single one for all."""

    stdin: int
    outputs: Mapping[int, str]
    command_ends: tuple[int, int, int]

    def close_command_ends(self) -> None:
        """Close the agent's copies of the command's ends."""
        for fd in set(self.command_ends):
            os.close(fd)

    def close_ours(self) -> None:
        """Close the agent's ends."""
        for fd in {self.stdin, *self.outputs} - {-1}:
            os.close(fd)


def pipe_ends() -> Ends:
    """Three pipes or none: a failure closes the ones already opened."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    stdin, ours, out, stdout, err, stderr = opened
    for fd in (ours, out, err):
        os.set_blocking(fd, False)
    return Ends(ours, {out: STDOUT, err: STDERR}, (stdin, stdout, stderr))


def terminal_ends() -> Ends:
    """A new terminal."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    return Ends(ours, {ours: STDOUT}, (theirs, theirs, theirs))


Leaders = Callable[[], list[int]]
"""Returns process ids."""


class ProcessSession:
    """An `ExecSession` for a process of this agent."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        ended: asyncio.Future[int],
        ends: Ends,
        *,
        other_leaders: Leaders,
    ) -> None:
        """`other_leaders` returns the leaders of other sessions that belong to the command."""
        self._transport = transport
        self._ended = ended
        self._ends = ends
        self._is_terminal = ends.stdin in ends.outputs
        self._outputs = Outputs(ends.outputs, ended)
        self._input = Input(ends.stdin)
        self._is_input_open = True
        self._closing: asyncio.Future[None] | None = None
        self._pid = transport.get_pid()
        self._started = process_identity.start_time(self._pid)
        self.on_close: list[Callable[[], object]] = []
        self._other_leaders = other_leaders

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended."""
        return self._ended.done()

    def output(self) -> AsyncIterator[ExecOutput]:
        """The command's output as it arrives."""
        return self._outputs.pieces()

    async def write(self, data: bytes) -> None:
        """Write to its input."""
        if self._is_input_open:
            await self._input.write(data)

    async def close_input(self) -> None:
        """Close its input; a terminal gets its end-of-file character."""
        if not self._is_input_open:
            return
        if self._is_terminal:
            await self._input.write(END_OF_INPUT)
            return
        self._is_input_open = False
        await self._input.finish()
        if self._closing is None:
            fd, self._ends = self._ends.stdin, self._ends._replace(stdin=-1)
            os.close(fd)

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of its terminal."""
        if self._is_terminal and self._closing is None:
            rows, columns = (min(max(number, 0), SIZE_MAX) for number in (size.height, size.width))
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._ends.stdin, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        """Wait for its end."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Kill a running command and free everything."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            if not self._ended.done():
                await self._end()
        finally:
            if not self._ended.done():
                process_identity.send_signal(self._pid, self._started, signal.SIGKILL)
            self._let_go()
            self._transport.close()
            for act in self.on_close:
                act()
            self._closing.set_result(None)

    async def _end(self) -> None:
        """Send SIGHUP, then SIGKILL to the remaining processes.

        A launcher (runc) that stands between the command and us is left to itself: it ends after its command, whose
        dead it buries. Were both killed at once, a dead process would stay in the task's PID namespace until the
        machine's init finds it, and hold up the end of the task.
        """
        found = await asyncio.to_thread(self._members)
        for pid, started in found:
            process_identity.send_signal(pid, started, signal.SIGHUP)
        await asyncio.wait([self._ended], timeout=HANGUP_S)
        if not self._ended.done():
            found += await asyncio.to_thread(self._members)
        for pid, started in found:
            process_identity.send_signal(pid, started, signal.SIGKILL)
        self._let_go()
        await asyncio.wait([self._ended], timeout=KILL_LIMIT_S)
        if not self._ended.done():
            process_identity.send_signal(self._pid, self._started, signal.SIGKILL)
            await asyncio.wait([self._ended], timeout=KILL_LIMIT_S)

    def _let_go(self) -> None:
        """Close the agent's ends; a launcher with remaining output gets an error."""
        self._outputs.stop()
        self._input.stop()
        self._ends.close_ours()
        self._ends = self._ends._replace(stdin=-1, outputs={})

    def _members(self) -> list[tuple[int, int]]:
        """All processes of the command's session with their start times; blocking. Its leader has not been reaped."""
        inner = self._other_leaders()
        leaders, spared = ({*inner, self._pid}, self._pid) if inner else ({self._pid}, 0)
        pids = [
            pid for pid in process_identity.all_pids() if pid != spared and process_identity.session_of(pid) in leaders
        ]
        found = [(pid, process_identity.start_time(pid)) for pid in pids]
        return [(pid, started) for pid, started in found if started]


async def start_session(
    command: tuple[str, ...], context: ExecContext, *, tty: bool, other_leaders: Leaders = list
) -> ProcessSession:
    """Run a command in a new session; raises DriverError with the reason for a failure."""
    if not command or not command[0]:
        raise DriverError("no command was given to run in the task")
    if any("\0" in word for word in command):
        raise DriverError(f'cannot run "{command[0]}" in the task: an argument contains a NUL character')
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    request = request_for(command, context, tty=tty)
    try:
        transport, ends, status_fd = await _spawn(request, _WatchedProtocol(ended), tty=tty)
    except OSError as error:
        reason = f"{error.strerror or error}; is the machine, or the agent, out of processes, files or memory?"
        raise RecoverableError(f'cannot run "{command[0]}" in the task: {reason}') from error
    session = ProcessSession(transport, ended, ends, other_leaders=other_leaders)
    try:
        failure = await read_status(status_fd)
    except BaseException:
        await session.close()
        raise
    finally:
        os.close(status_fd)
    if failure:
        await session.close()
        raise DriverError(f'cannot run "{command[0]}" in the task: {reason_of(failure, command[0], context)}')
    return session


async def _spawn(
    request: dict[str, Any], watched: _WatchedProtocol, *, tty: bool
) -> tuple[asyncio.SubprocessTransport, Ends, int]:
    """Start `exec_child`; returns its transport, the ends of its streams and its status pipe."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        ends = terminal_ends() if tty else pipe_ends()
        theirs.callback(ends.close_command_ends)
        ours.callback(ends.close_ours)
        status_fd, child_status = os.pipe()
        theirs.callback(os.close, child_status)
        ours.callback(os.close, status_fd)
        request_fd = request_file(request)
        theirs.callback(os.close, request_fd)
        stdin, stdout, stderr = ends.command_ends
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: watched,
            *(sys.executable, "-I", "-S", "-E", str(PROGRAM), str(request_fd), str(child_status)),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(request_fd, child_status),
            start_new_session=True,
            cwd="/",
            env={},
        )
        ours.pop_all()
    return transport, ends, status_fd


def request_for(command: tuple[str, ...], context: ExecContext, *, tty: bool) -> dict[str, Any]:
    """The request for `exec_child`."""
    env = dict(context.env)
    if tty:
        env.setdefault("TERM", DEFAULT_TERM)
    user = context.user
    return {
        "argv": [os.fsencode(word) for word in command],
        "candidates": [os.fsencode(path) for path in candidates(command[0], search_path(env), context.search)],
        "env": {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
        "cwd": os.fsencode(context.cwd),
        "uid": user.uid if user else None,
        "gid": user.gid if user else None,
        "groups": list(user.groups) if user else [],
        "netns": os.fsencode(context.network_namespace),
        "join": [os.fsencode(f"{folder}/cgroup.procs") for folder in context.cgroups],
        "must_join": [],
        "is_terminal": tty,
        "parent": os.getpid(),
    }


def request_file(request: dict[str, Any]) -> int:
    """The request in an anonymous file, since a task's environment can be large."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("yurt-exec")
    else:
        with tempfile.TemporaryFile(buffering=0) as file:
            fd = os.dup(file.fileno())
    os.write(fd, marshal.dumps(request))
    return fd


async def read_status(fd: int) -> bytes:
    """The child's report of a failure; empty when it became the command."""
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()
    status: asyncio.Future[bytes] = loop.create_future()

    def on_readable() -> None:
        try:
            data = os.read(fd, STATUS_BYTES)
        except BlockingIOError:
            return
        loop.remove_reader(fd)
        status.set_result(data)

    loop.add_reader(fd, on_readable)
    try:
        async with asyncio.timeout(START_LIMIT_S):
            return await status
    except TimeoutError:
        raise DriverError(
            f"the command was not started within {START_LIMIT_S:g} s; is the machine overloaded?"
        ) from None
    finally:
        if not status.done() or status.cancelled():
            loop.remove_reader(fd)


def reason_of(failure: bytes, command: str, context: ExecContext) -> str:
    """The reason why a command could not run, as text."""
    stage, _, code = failure.decode(errors="replace").partition(" ")
    reason = os.strerror(int(code)) if code.isdigit() else "its process ended"
    match stage:
        case "exec" if "/" not in command:
            return f"{reason}; it is in none of the folders of PATH ({search_path(context.env)})"
        case "cwd":
            return f"its folder {context.cwd}: {reason}"
        case "netns":
            return f"its network namespace: {reason}"
        case _:
            return reason


async def run_to_end(session: ExecSession, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
    """The output of a command without input, each stream up to a bound, and its exit code; killed after `timeout`."""
    buffers = {STDOUT: bytearray(), STDERR: bytearray()}
    limit_s = timeout / NANOSECONDS
    try:
        async with asyncio.timeout(limit_s):
            await session.close_input()
            async for piece in session.output():
                found = buffers[piece.stream]
                found += piece.data[: EXEC_OUTPUT_BYTES_MAX - len(found)]
            code = await session.wait()
    except TimeoutError:
        raise DriverError(f'"{command[0]}" did not end within {limit_s:g} s and was killed') from None
    finally:
        await session.close()
    return ExecResult(exit_code=code, stdout=bytes(buffers[STDOUT]), stderr=bytes(buffers[STDERR]))
