"""Runs `yurt` commands of tests in forks of one process that has imported Yurt.

A new interpreter imports some thousand modules before an agent starts, which takes longer than all else that most tests
do; a fork has them. The server has one thread and no event loop. Tests send it a command over a socket, with the
descriptors of its standard streams; the child of the server receives the rest of the command by itself, leaves the
server's loop, and runs and ends as a new interpreter does.

What only the start of an interpreter does is not repeated in a fork. So commands with another user or with other values
of START_VARIABLES get a new interpreter, as do all commands inside `new_interpreters()`, or where YURT_NEW_INTERPRETERS
or YURT_NIGHTLY is set. A fork shows the server's words in /proc/PID/cmdline, and the server's hash seed is its own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import pkgutil
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from yurt.testing.nightly import is_nightly
from yurt.testing.services import fork_program

START_VARIABLES = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC_", "OPENSSL_", "OPENBLAS_")
"""The first letters of variables that an interpreter, or a library that it loads, reads once."""
NEW_INTERPRETERS = "YURT_NEW_INTERPRETERS"
START_LIMIT_S, END_LIMIT_S = 120.0, 30.0
APART = ("testing", "ui", "executor")
"""Parts of Yurt that no command imports as a whole: `executor` has the programs of other processes."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Let numpy start no threads in the server: a fork has only the thread that forked."""


class Command(NamedTuple):
    """A command line without `yurt`, its working directory, and its whole environment."""

    words: list[str]
    folder: str
    environ: dict[str, str]


class ForkedCommand:
    """A running command: what `subprocess.Popen` offers of a process without pipes."""

    def __init__(self, args: Sequence[str], reply: socket.socket) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._reply = reply
        self._lines = reply.makefile("r")
        self.pid = self._next_number()

    def poll(self) -> int | None:
        """The exit code, below 0 for a signal; None while the command runs."""
        if self.returncode is None and select.select([self._reply], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the command has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end is on its way here
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        with self._reply, self._lines:
            self.returncode = self._next_number()

    def _next_number(self) -> int:
        line = self._lines.readline()
        assert line, "the fork server has ended"
        return int(line)


class ForkServer:
    """A server process, which ends with the process that started it."""

    def __init__(self) -> None:
        self.start_variables = _start_variables(os.environ)
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **ONE_THREAD})
        self._control.settimeout(START_LIMIT_S)
        assert self._control.recv(1), "the fork server did not start"
        self._control.settimeout(None)

    def start(self, args: Sequence[str], command: Command, streams: Sequence[int]) -> ForkedCommand:
        """Start a command with the descriptors of its three standard streams."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [b"c"], [theirs.fileno(), *streams])
        ours.sendall(pickle.dumps(tuple(command)))  # the server knows this module as `__main__`
        ours.shutdown(socket.SHUT_WR)
        return ForkedCommand(args, ours)

    @property
    def descriptor(self) -> int:
        """What the processes that start programs of `forking_program` must inherit, under the same number."""
        return self._control.fileno()

    def end_commands(self) -> None:
        """Terminate the commands that run, and wait for their ends."""
        import psutil

        found = psutil.Process(self._process.pid).children()
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.terminate()
        psutil.wait_procs(found, timeout=END_LIMIT_S)

    def close(self) -> None:
        """End the server; commands that run go on."""
        self._control.close()
        self._process.wait(START_LIMIT_S)


class _Active:
    """The server that `process` and `finished` use; None: each command gets a new interpreter."""

    server: ForkServer | None = None


@contextmanager
def fork_server() -> Iterator[None]:
    """Run commands in forks during the block, unless the environment asks for new interpreters."""
    if not _may_fork():
        yield
        return
    server = _Active.server = ForkServer()
    try:
        yield
    finally:
        _Active.server = None
        server.close()


@contextmanager
def forking_program(path: Path) -> Iterator[tuple[int, ...]]:
    """Write an executable that runs `yurt`, in a fork unless the environment asks for new interpreters.

    For programs of others that start Yurt as a process. Yields the descriptors that they must inherit. Commands that
    still run at the end of the block are terminated: a program that was killed (SIGKILL) leaves its fork.
    """
    server = ForkServer() if _may_fork() else None
    words = [sys.executable, "-m", "yurt.cli.main"]
    if server is not None:
        words = [sys.executable, "-I", "-S", "-E", fork_program.__file__, str(server.descriptor)]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    try:
        yield () if server is None else (server.descriptor,)
    finally:
        if server is not None:
            server.end_commands()
            server.close()


def _may_fork() -> bool:
    return NEW_INTERPRETERS not in os.environ and not is_nightly() and hasattr(os, "pidfd_open")


@contextmanager
def new_interpreters() -> Iterator[None]:
    """Start a new interpreter for each command during the block: for tests about processes themselves."""
    server, _Active.server = _Active.server, None
    try:
        yield
    finally:
        _Active.server = server


def forked(
    words: Sequence[str], *, cwd: Path | str, env: Mapping[str, str], streams: Sequence[int]
) -> ForkedCommand | None:
    """Start `yurt WORDS` in a fork; None where it needs a new interpreter."""
    server = _Active.server
    if server is None or _start_variables(env) != server.start_variables:
        return None
    return server.start(["yurt", *words], Command(list(words), str(cwd), dict(env)), streams)


def _start_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(START_VARIABLES)}


# In the server.


def import_all() -> dict[str, str]:
    """Import all modules of Yurt and its plugins; the environment variables that modules set for themselves."""
    before = dict(os.environ)
    import yurt
    from yurt.agent.run import import_parts

    import_parts()
    for name in ("numpy", "uvloop"):
        importlib.import_module(name)
    plugins = [entry.load().__package__ for entry in entry_points(group="yurt.plugins.v1")]
    parts = [f"yurt.{part.name}" for part in pkgutil.iter_modules(yurt.__path__) if part.name not in APART]
    for name in (*parts, *plugins, "yurt_jobspec"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has only the thread that forked"
    return {name: value for name, value in os.environ.items() if name not in before}


def serve(control: socket.socket) -> Command | None:
    """Fork a child for each command; returns the command in the child, None in the server at its end."""
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not control:
                waiting.unregister(key.fd)
                _report_end(key.fd, *key.data)
                continue
            data, fds, _, _ = socket.recv_fds(control, 1, 4)
            if not data:
                return None
            reply = socket.socket(fileno=fds[0])
            pid = os.fork()
            if pid == 0:
                _close_all(waiting)
                return _received(reply, fds[1:])
            for fd in fds[1:]:
                os.close(fd)
            reply.sendall(f"{pid}\n".encode())
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))


def _report_end(pidfd: int, pid: int, reply: socket.socket) -> None:
    os.close(pidfd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with reply:
        try:
            reply.sendall(f"{code}\n".encode())
        except BrokenPipeError:
            return  # The test has ended without waiting for it.


def _close_all(waiting: selectors.BaseSelector) -> None:
    """Close in a child what belongs to the server: the selector is in a cycle, and would close its number later."""
    for key in list(waiting.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        else:
            _, reply = key.data
            os.close(key.fd)
            reply.close()
    waiting.close()


def _received(reply: socket.socket, streams: list[int]) -> Command:
    """Receive the command in the child, and move its standard streams to their numbers."""
    with reply, reply.makefile("rb") as file:
        command = Command(*pickle.load(file))
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    return command


def _text(stream: TextIO) -> dict[str, Any]:
    return {"encoding": stream.encoding, "errors": stream.errors}


def run(command: Command, own_variables: Mapping[str, str]) -> int:
    """Run a command in this process, as the module `yurt.cli.main` would; the exit code."""
    os.environ.clear()
    os.environ.update({**own_variables, **command.environ})
    os.chdir(command.folder)
    # At a terminal or not, `fdopen` chooses buffers as the start of an interpreter does.
    sys.stdin = os.fdopen(0, **_text(sys.stdin), closefd=False)
    sys.stdout = os.fdopen(1, "w", **_text(sys.stdout), closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, **_text(sys.stderr), closefd=False)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    from yurt.cli import main

    sys.argv = [str(main.__file__), *command.words]
    sys.orig_argv = [sys.executable, "-m", main.__name__, *command.words]
    return main.main()


def main() -> Any:
    """Serve the socket whose descriptor is the only argument; in a child, the exit code of the command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    own_variables = import_all()
    gc.collect()
    gc.freeze()
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end the server.
    control.sendall(b"r")
    command = serve(control)
    if command is None:
        return 0
    signal.signal(signal.SIGINT, interrupt)
    code = run(command, own_variables)
    # A fork that frees all modules would copy their memory first: it ends without that.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
