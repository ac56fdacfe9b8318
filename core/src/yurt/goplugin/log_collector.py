"""The program that collects the output of plugins' tasks: `python -I -S -E log_collector.py FOLDER [dev]`.

A plugin writes a task's output to a FIFO. If the agent were its reader, the end of the agent would break the pipe, and
with it the task. So the reader is this small program, which outlives the agent and appends the output to the task's
rotated log files. An agent sends it requests as lines of JSON over the socket `logs.sock` in its folder:

    {"op": "open", "id": ..., "streams": [[fifo, base of the log files], ...], "max_files": n, "max_bytes": n}
    {"op": "drain", "id": ...}     answered when all output so far is in the files
    {"op": "close", "id": ...}     drains the output, then forgets the task and removes its FIFOs

Each request is answered by `{"ok": true}` or `{"error": text}`. The program ends when it reads for no task and no agent
is connected; in a dev run as soon as no agent is connected.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import selectors
import socket
import stat
import sys


def stand_alone() -> None:
    """Make the module of log files importable by its name, without what its package would import as well."""
    core = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name, folder in (("yurt", core), ("yurt.executor", os.path.join(core, "executor"))):
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package


if __name__ == "__main__":
    stand_alone()

from yurt.executor.rotated_log import RotatedLog  # noqa: E402 - the path to it was made just now

SOCKET_NAME = "logs.sock"
READ_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 * 1024
PIPE_BYTES = 1024 * 1024
DRAIN_READS_MAX = 4 * PIPE_BYTES // READ_BYTES
IDLE_S = 10.0
SWEEP_S = 60.0
F_SETPIPE_SZ = 1031


class Output:
    """One output of a task: its FIFO, opened for reading and writing so that it never ends, and its files."""

    def __init__(self, fifo: str, log: RotatedLog, folder: str) -> None:
        self.fifo = fifo
        self.folder = folder
        self.log = log
        self.fd = open_fifo(fifo)

    def read(self) -> bool:
        """Read the available bytes; False when there are none."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return False
        self.log.write(data)
        return bool(data)

    def drain(self) -> None:
        """Read until the FIFO is empty, at most a bounded number of bytes."""
        for _ in range(DRAIN_READS_MAX):
            if not self.read():
                return

    def close(self) -> None:
        """Free the descriptors and remove the FIFO."""
        os.close(self.fd)
        self.log.close()
        try:
            os.unlink(self.fifo)
        except OSError:
            return


def open_fifo(path: str) -> int:
    """Open a FIFO, made when it is missing; raises OSError for any other file at its path."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a FIFO", path)
    with contextlib.suppress(OSError):  # The system's own size will do as well.
        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
    return fd


class Collector:
    """Reads for tasks and answers agents, on one thread."""

    def __init__(self, folder: str, *, is_dev: bool) -> None:
        self.is_dev = is_dev
        self.selector = selectors.DefaultSelector()
        self.outputs: dict[str, list[Output]] = {}
        self.agents: dict[socket.socket, bytes] = {}
        self.had_agent = False
        os.chdir(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(SOCKET_NAME)
        self.listener.listen(16)
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve until no task and no agent is left."""
        while True:
            ready = self.selector.select(SWEEP_S if self.agents else IDLE_S)
            for key, _ in ready:
                self.on_ready(key)
            if not ready:
                self.sweep()
            is_idle = not self.agents and (not self.outputs or self.is_dev)
            if is_idle and (self.had_agent or not ready):
                return

    def sweep(self) -> None:
        """Stop reading for tasks whose log folder was removed."""
        for name, outputs in list(self.outputs.items()):
            if not all(os.path.isdir(output.folder) for output in outputs):
                self.forget(name)

    def forget(self, name: str) -> None:
        """Stop reading for a task."""
        for output in self.outputs.pop(name, ()):
            self.selector.unregister(output.fd)
            output.drain()
            output.close()

    def on_ready(self, key: selectors.SelectorKey) -> None:
        """Read from an output that has data."""
        if isinstance(key.data, Output):
            key.data.read()
        elif key.fileobj is self.listener:
            agent = self.listener.accept()[0]
            self.agents[agent] = b""
            self.had_agent = True
            self.selector.register(agent, selectors.EVENT_READ, None)
        elif isinstance(key.fileobj, socket.socket):
            self.on_agent(key.fileobj)

    def on_agent(self, agent: socket.socket) -> None:
        """Handle requests of an agent, or its disconnection."""
        try:
            data = agent.recv(READ_BYTES)
            *lines, rest = (self.agents[agent] + data).split(b"\n")
            for line in lines:
                agent.sendall(self.answer(line))
        except OSError:
            data, rest = b"", b""
        self.agents[agent] = rest
        if not data or len(rest) > LINE_BYTES_MAX:
            self.selector.unregister(agent)
            del self.agents[agent]
            agent.close()

    def answer(self, line: bytes) -> bytes:
        """Perform the request of a line and send the answer."""
        try:
            request = json.loads(line)
            self.perform(request)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return json.dumps({"error": str(error)}).encode() + b"\n"
        return b'{"ok": true}\n'

    def perform(self, request: dict[str, object]) -> None:
        """One request."""
        name = str(request["id"])
        match request["op"]:
            case "open":
                if name not in self.outputs:
                    self.open(name, request)
            case "drain":
                for output in self.outputs.get(name, ()):
                    output.drain()
            case "close":
                self.forget(name)
            case other:
                raise ValueError(f"{other!r} is not a request")

    def open(self, name: str, request: dict[str, object]) -> None:
        """Start reading the FIFOs of a task."""
        streams = request["streams"]
        if not isinstance(streams, list):
            raise TypeError("streams must be a list")
        limits = {key: int(str(request[key])) for key in ("max_files", "max_bytes")}
        opened: list[Output] = []
        try:
            for fifo, base in streams:
                log = RotatedLog(os.fsencode(base), max_files=limits["max_files"], max_bytes=limits["max_bytes"])
                opened.append(Output(fifo, log, os.path.dirname(base)))
        except OSError:
            for output in opened:
                output.close()
            raise
        for output in opened:
            self.selector.register(output.fd, selectors.EVENT_READ, output)
        self.outputs[name] = opened


if __name__ == "__main__":
    Collector(sys.argv[1], is_dev="dev" in sys.argv[2:]).serve()
