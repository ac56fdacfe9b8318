"""One process of a plugin binary: starts or recovers it, reads its output, and stops it.

A plugin outlives the agent, like its tasks. For that its output goes to FIFOs that it has open for reading and writing
(a pipe to the agent would break with the agent, and the plugin's next output would kill it), it leads a session of its
own, and `reattach.json` has the data to connect to it again. It is recovered only when program and settings are
unchanged; otherwise it is ended and a new one started.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from yurt.executor import process_identity
from yurt.goplugin.handshake import (
    LINE_BYTES_MAX,
    Handshake,
    HandshakeError,
    parse_handshake,
    plugin_environment,
)
from yurt.goplugin.spawn import WatchedProcess, spawn
from yurt.goplugin.tls import KeyPair, Relay, make_key_pair, pem_of, tls_context
from yurt.runtime.env import Env
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.trust import distrust
from yurt.sdk.value import Value, no_entries
from yurt.structs.node import ProcessorTopology

log = logging.getLogger(__name__)

HANDSHAKE_LIMIT_S = 30.0
EXIT_LIMIT_S = 2.0
KILL_LIMIT_S = 5.0
READ_BYTES = 64 * 1024
FOLDER_BYTES_MAX = 56
"""The longest path of a folder for sockets: a socket's path is limited to 107 bytes."""
LOG_LINE_BYTES_MAX = 8 * 1024
LINES_A_SECOND_MAX = 500
DEATH_WITH_AGENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"
)


class PluginSpec(Value, rename=None):
    """A binary and its settings. `folder` is its state folder; `ports` are for plugins that listen on TCP."""

    name: str
    path: str
    folder: str
    args: tuple[str, ...] = ()
    config: Mapping[str, Any] = no_entries()
    is_dev: bool = False
    is_encrypted: bool = False
    ports: tuple[int, int] = (14000, 14512)
    handshake_limit_s: float = HANDSHAKE_LIMIT_S
    inherited: tuple[str, ...] = ()
    """Additional variables of the agent that it sees, by name or pattern."""
    topology: ProcessorTopology | None = None
    """The processors of the node; drivers that bind tasks to cores need them."""

    def digest(self) -> str:
        """A digest that differs after each change of the program or of its settings."""
        found = os.stat(self.path)
        identity = [self.path, found.st_ino, found.st_size, found.st_mtime_ns, list(self.args), self.is_encrypted]
        settings = [list(self.inherited), msgspec.to_builtins(self.config)]
        data = msgspec.json.encode([*identity, *settings], order="sorted")
        return hashlib.blake2b(data, digest_size=16).hexdigest()


class Reattach(Value, rename=None):
    """The data to reattach to a plugin's process; the key is the agent's private key for TLS."""

    digest: str
    pid: int
    start_time: int
    boot_id: str
    sockets: str
    handshake: Handshake
    key_pair: KeyPair | None = None


class PluginProcess:
    """A plugin process whose handshake was read."""

    def __init__(self, spec: PluginSpec, reattach: Reattach) -> None:
        self.spec = spec
        self.reattach = reattach
        self.watched = WatchedProcess(reattach.pid, reattach.start_time)
        self._relay: Relay | None = None
        self._readers: dict[int, bytes] = {}
        self._limit = LineLimit(spec.name)

    @property
    def target(self) -> str:
        """The address to which gRPC connects."""
        return f"unix:{self._relay.path}" if self._relay else self.reattach.handshake.target

    async def open(self) -> None:
        """Start reading the process's output, and the TLS relay if it uses TLS."""
        for output in ("stdout", "stderr"):
            with contextlib.suppress(OSError):
                fd = os.open(f"{self.reattach.sockets}/{output}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._readers[fd] = b""
                asyncio.get_running_loop().add_reader(fd, self._on_output, fd)
        handshake, pair = self.reattach.handshake, self.reattach.key_pair
        if not handshake.certificate:
            return
        if pair is None:
            raise HandshakeError(f"plugin {self.spec.name} wants TLS, which was not offered to it")
        context = tls_context(pair, peer_certificate=pem_of(handshake.certificate), is_server=False)
        path = f"{self.reattach.sockets}/relay-{os.getpid()}.sock"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._relay = Relay(path, network=handshake.network, address=handshake.address, connect=context)
        await self._relay.open()

    def _on_output(self, fd: int) -> None:
        """Write the plugin's output lines to the agent's log."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._stop_reading(fd)
            return
        *lines, rest = (self._readers[fd] + data).split(b"\n")
        if len(rest) > LOG_LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        now = asyncio.get_running_loop().time()
        for line in lines:
            if self._limit.admits(now):
                log_line(self.spec.name, line)
        self._readers[fd] = rest

    def _stop_reading(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    async def end(self, *, patience_s: float = EXIT_LIMIT_S) -> None:
        """Wait for the process to end, kill it after a limit, and remove its sockets."""
        for limit_s, number in ((patience_s, signal.SIGKILL), (KILL_LIMIT_S, None)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self.watched.wait()
            if number is not None:
                self.watched.send(number)
        await self.leave()
        reattach_file(self.spec).unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, self.reattach.sockets, True)

    async def leave(self) -> None:
        """Stop reading its output; the process continues."""
        for fd in list(self._readers):
            self._stop_reading(fd)
        self.watched.leave()
        if self._relay is not None:
            await self._relay.close()


def reattach_file(spec: PluginSpec) -> Path:
    """The path of the file with the reattach data."""
    return Path(spec.folder) / "reattach.json"


async def find_process(spec: PluginSpec) -> PluginProcess | None:
    """The plugin's process of an earlier agent; one of another program or other settings is ended."""
    try:
        reattach = msgspec.json.decode(reattach_file(spec).read_bytes(), type=Reattach)
    except (OSError, msgspec.DecodeError):
        return None
    if reattach.boot_id != process_identity.boot_id() or not process_identity.is_alive(
        reattach.pid, reattach.start_time
    ):
        await asyncio.to_thread(shutil.rmtree, reattach.sockets, True)
        return None
    process = PluginProcess(spec, reattach)
    if reattach.digest != spec.digest():
        log.info("plugin %s has changed; its process %d is replaced", spec.name, reattach.pid)
        process.watched.send(signal.SIGTERM)
        await process.end()
        return None
    await process.open()
    return process


async def start_process(spec: PluginSpec, env: Env) -> PluginProcess:
    """Start the binary and read its handshake; raises HandshakeError, or DriverError when it cannot be started."""
    if problem := await asyncio.to_thread(distrust, spec.path):
        raise DriverError(f"plugin {spec.path} is refused: {problem}")
    os.makedirs(spec.folder, exist_ok=True, mode=0o700)
    is_short = len(os.fsencode(spec.folder)) <= FOLDER_BYTES_MAX
    sockets = tempfile.mkdtemp(prefix="yurt-plugin-" if not is_short else "", dir=spec.folder if is_short else None)
    try:
        return await _start(spec, env, sockets)
    except BaseException:
        shutil.rmtree(sockets, ignore_errors=True)
        raise


async def _start(spec: PluginSpec, env: Env, sockets: str) -> PluginProcess:
    pair = make_key_pair(env.now()) if spec.is_encrypted else None
    variables = plugin_environment(
        socket_folder=sockets,
        ports=spec.ports,
        client_certificate=pair.certificate if pair else "",
        base=os.environ,
        allowed=spec.inherited,
    )
    command = [spec.path, *spec.args]
    if spec.is_dev and sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-E", "-c", DEATH_WITH_AGENT, *command]
    outputs = (open_output(f"{sockets}/stdout"), open_output(f"{sockets}/stderr"))
    try:
        pid = spawn(command, env=variables, outputs=outputs)
        child = WatchedProcess(pid, process_identity.start_time(pid))
        try:
            handshake = await read_handshake(spec, outputs[0], child)
        except BaseException:
            log_rest(spec.name, outputs[1])
            child.send(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), KILL_LIMIT_S)
            raise
        finally:
            child.leave()
    except OSError as error:
        raise DriverError(f"plugin {spec.path} cannot be started: {error.strerror or error}") from None
    finally:
        for fd in outputs:
            os.close(fd)
    reattach = Reattach(
        digest=spec.digest(),
        pid=pid,
        start_time=child.start_time,
        boot_id=process_identity.boot_id(),
        sockets=sockets,
        handshake=handshake,
        key_pair=pair,
    )
    process = PluginProcess(spec, reattach)
    write_private(reattach_file(spec), msgspec.json.encode(reattach))
    await process.open()
    return process


def open_output(path: str) -> int:
    """A FIFO for what a plugin prints, open for both ways: its reader may come and go."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only we may read, whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    fresh.replace(path)


async def read_handshake(spec: PluginSpec, stdout: int, child: WatchedProcess) -> Handshake:
    """Read the first line that a plugin prints, within the time limit of a handshake."""
    reader = os.open(f"/proc/self/fd/{stdout}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(spec.handshake_limit_s):
            data = await first_output(reader, child)
    except TimeoutError:
        raise RecoverableError(
            f"plugin {spec.path} printed no handshake within {spec.handshake_limit_s:g} s; it was killed"
        ) from None
    finally:
        os.close(reader)
    line, _, rest = data.partition(b"\n")
    for other in rest.splitlines():
        log_line(spec.name, other)
    if child.ended.is_set() and not line:
        how = exit_text(child.code)
        raise HandshakeError(f"plugin {spec.path} ended ({how}) before its handshake; the log shows what it printed")
    try:
        return parse_handshake(line.decode("utf-8", "replace"))
    except HandshakeError as error:
        raise HandshakeError(f"plugin {spec.path}: {error}") from None


async def first_output(reader: int, child: WatchedProcess) -> bytes:
    """The output of a process up to the first newline or its end."""
    data = b""
    while b"\n" not in data and len(data) < LINE_BYTES_MAX:
        is_last = child.ended.is_set()
        try:
            data += os.read(reader, READ_BYTES)
        except BlockingIOError:
            if is_last:
                break
            await wait_output(reader, child)
    return data


async def wait_output(reader: int, child: WatchedProcess) -> None:
    """Wait until something can be read, or the process has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(reader, ready.set)
    try:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(ready.wait()), group.create_task(child.ended.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
    finally:
        loop.remove_reader(reader)


def exit_text(code: int | None) -> str:
    """The end of a process in words: exit code or signal."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def log_rest(name: str, output: int) -> None:
    """Log the remaining output of a plugin that failed to start."""
    reader = os.open(f"/proc/self/fd/{output}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.suppress(BlockingIOError):
        for line in os.read(reader, READ_BYTES).splitlines():
            log_line(name, line)
    os.close(reader)


class LineLimit:
    """Limits the log lines of a plugin per second, and reports the number of dropped ones."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._second = 0
        self._lines = 0

    def admits(self, now: float) -> bool:
        """Whether to log a line at this time."""
        if int(now) != self._second:
            if self._lines > LINES_A_SECOND_MAX:
                log.warning("plugin %s: %d lines were left out", self._name, self._lines - LINES_A_SECOND_MAX)
            self._second, self._lines = int(now), 0
        self._lines += 1
        return self._lines <= LINES_A_SECOND_MAX


DEATHS = ("panic:", "fatal error:")
PLAIN_LEVEL = re.compile(r"^(?:[\dTZ:/.+-]+ ){0,2}\[(\w+)\]")
"""A level in brackets, after a time of one word or two."""
LEVELS = {"trace": 5, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


def log_line(name: str, line: bytes) -> None:
    """Write a line of a plugin to our log: those of Go's hclog are JSON with a level, a message and further keys."""
    text = line[:LOG_LINE_BYTES_MAX].decode("utf-8", "replace").strip()
    if not text:
        return
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict) or "@message" not in found:
        log.log(plain_level(text), "plugin %s: %s", name, text)
        return
    extra = " ".join(f"{key}={value}" for key, value in found.items() if not key.startswith("@"))
    level = LEVELS.get(str(found.get("@level", "")).lower(), logging.INFO)
    log.log(level, "plugin %s: %s%s", name, found["@message"], f": {extra}" if extra else "")


def plain_level(text: str) -> int:
    """The level of a line that is not JSON: a Go panic is an error; some loggers write `[WARN]`."""
    if text.startswith(DEATHS):
        return logging.ERROR
    word = PLAIN_LEVEL.search(text)
    return LEVELS.get(word[1].lower(), logging.INFO) if word else logging.INFO
