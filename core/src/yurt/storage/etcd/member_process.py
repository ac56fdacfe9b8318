"""An etcd member as a child process of the agent: started, supervised, logged, and ended with the agent.

The child dies with the agent, however that ends (PR_SET_PDEATHSIG), since the next agent needs its ports and its data.
It leads a session of its own, so that an interrupt at the terminal reaches the agent first, which gives its leadership
away before it stops etcd. Its data survives being killed at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Final, cast

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.storage.etcd.settings import EtcdMemberConfig, etcd_arguments, has_member_data

log = logging.getLogger(__name__)

START_LIMIT_S: Final = 20.0
STOP_LIMIT_S: Final = 2.0
"""etcd first tries to transfer its leadership, even to members that are stopping; killing it loses nothing."""
RENEW_LIMIT_S: Final = 20.0
"""The limit, besides the time of elections, where etcd must end in order: it writes its last commits then."""
ELECTIONS_AT_END: Final = 4
"""etcd waits at most 5 s and two elections for its clients, and as long again for another leader."""
VERSION_LIMIT_S: Final = 10.0
PROBE_PAUSE_S: Final = 0.02
RESTART_PAUSE_FIRST_S, RESTART_PAUSE_MAX_S = 0.1, 10.0
STEADY_S: Final = 60.0
"""A member that ran for this many seconds is restarted without a growing pause."""
LINE_BYTES_MAX: Final = 16 * 1024
SAME_LINE_PAUSE_S: Final = 30.0
"""Seconds during which a repeated message of etcd is logged once."""
SAME_LINES_MAX: Final = 256
LAST_LINES: Final = 5
LAUNCH: Final = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)
"""A program that starts etcd and makes it die with the parent of the given pid, even if that has died already."""
REMOVED: Final = "permanently removed from the cluster"
FLOOR_34, FLOOR_35 = (3, 4, 22), (3, 5, 6)
NOISE: Final = frozenset(
    {"simple token is not cryptographically signed", "established TCP streaming connection with remote peer"}
)
"""Warnings that concern unused features or normal conditions."""
DAMAGE: Final = re.compile(
    r"crc mismatch|illegal (tag|wireType)|unexpected EOF|failed to unmarshal|cannot be repaired|fault address"
    r"|recover v3 backend|invalid database|checksum error|corrupted, truncated, or lost|database snapshot file"
    r"|failed to (read|open|repair) WAL|(?<![.\w])(wal|snap): |^panic: (?!failed to find local ID in cluster members)"
)
"""Messages of etcd, as an error or a crash, that it cannot use its files. It also panics when it is asked for its
status in the moment in which it is removed from its cluster; its next start tells that."""
CRASH: Final = re.compile(r"panic: |unexpected fault address|fatal error: |SIG[A-Z]+: ")
OTHER_CAUSES: Final = re.compile(
    r"no space left|file too large|disk quota exceeded|read-only file system|input/output error|permission denied"
    r"|address already in use|too many open files"
)
GRPC_LINE: Final = re.compile(r"(INFO|WARNING): \d{4}/")
"""Log lines of the client that etcd has inside itself."""
LEVELS: Final = {"warn": logging.WARNING, "error": logging.ERROR, "panic": logging.ERROR, "fatal": logging.ERROR}

Version = tuple[int, int, int]


def check_version(version: Version) -> None:
    """Raises Invalid for a version that may lose data (3.5.0-3.5.5, 3.4 below 3.4.22) or is too old."""
    floor = FLOOR_34 if version[:2] < (3, 5) else FLOOR_35
    if version < floor:
        raise Invalid(
            f"etcd {_dotted(version)} is not safe to run with: it may lose or mix up data; "
            f"install {_dotted(FLOOR_34)} or newer of 3.4, or {_dotted(FLOOR_35)} or newer"
        )


def renew_limit_s(config: EtcdMemberConfig) -> float:
    """How long etcd may take to end in order."""
    return RENEW_LIMIT_S + ELECTIONS_AT_END * config.election_ms / 1000


def make_folders(config: EtcdMemberConfig) -> None:
    """Create private folders and remove a socket that a killed etcd left behind."""
    Path(config.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in (config.etcd_folder, config.socket_folder):
        folder.mkdir(exist_ok=True, mode=0o700)
    config.socket.unlink(missing_ok=True)


def member_command(config: EtcdMemberConfig) -> list[str]:
    """etcd's command line, with raised disk priority and a death signal tied to the process that starts it."""
    command = [config.binary, *etcd_arguments(config)]
    if shutil.which("ionice") is not None:
        command = ["ionice", "-t", "-c", "2", "-n", "0", *command]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *command]
    return command


def member_environment() -> dict[str, str]:
    """Only PATH of the agent's environment: etcd reads settings from the environment, which may also hold secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath)}


class EtcdMember:
    """One member: `start` it, keep `run` running, then `stop` it."""

    def __init__(self, config: EtcdMemberConfig, *, env: Env) -> None:
        self.config = config
        self._env = env
        self._process: _Process | None = None
        self._is_checked = False

    @property
    def has_data(self) -> bool:
        """Whether the member has run before with this data_dir."""
        return has_member_data(self.config.data_dir)

    @property
    def pid(self) -> int:
        """The pid of etcd; 0 while it does not run."""
        return 0 if self._process is None or self._process.ended.is_set() else self._process.pid

    @property
    def was_removed(self) -> bool:
        """Whether its last run has ended because its cluster removed it."""
        return self._process is not None and self._process.ended.is_set() and self._process.was_removed

    async def version(self) -> Version:
        """The version of the binary; raises Invalid when it is missing or unsafe."""
        binary = shutil.which(self.config.binary)
        if binary is None:
            raise Invalid(
                f"{self.config.binary} is not on PATH; several servers need etcd "
                "(apt install etcd-server), or an etcd that stands: etcd { endpoints = [...] }"
            )
        process = await asyncio.create_subprocess_exec(
            binary,
            "--version",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=member_environment(),
        )
        try:
            async with self._env.timeout(VERSION_LIMIT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Invalid(f"{binary} --version does not end within {VERSION_LIMIT_S:g} s") from None
        found = re.search(rb"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
        if found is None:
            text = output.decode("utf-8", "replace").strip()[:200]
            raise Invalid(f'{binary} does not look like etcd: --version answers "{text}"')
        version = (int(found[1]), int(found[2]), int(found[3]))
        check_version(version)
        return version

    async def start(self) -> None:
        """Start etcd; it listens when this returns, and answers once a majority of its cluster runs.

        Raises Invalid for a binary or a configuration that cannot be used, DamagedMember for damaged files, Unavailable
        when etcd ended at once.
        """
        assert not self.pid, "the etcd member runs already"
        if self.has_data:
            from yurt.storage.etcd.member_files.check import check_member_files

            await self._env.in_thread(check_member_files, Path(self.config.data_dir))
        command = member_command(self.config)
        if not self._is_checked:
            log.info("etcd %s is the server's own member %s", _dotted(await self.version()), self.config.name)
            self._is_checked = True
        make_folders(self.config)
        self._process = process = await _spawn(self.config, command, env=self._env)
        try:
            async with self._env.timeout(START_LIMIT_S):
                await self._wait_listening(process)
        except TimeoutError:
            await self.stop()
            raise Unavailable(f"etcd does not listen within {START_LIMIT_S:g} s; {process.last_words}") from None
        except BaseException:
            process.kill()
            raise

    async def run(self) -> None:
        """Restart etcd whenever it ends, until cancelled.

        Raises Conflict when the cluster has removed this member, DamagedMember when etcd cannot use its files.
        """
        pause_s = RESTART_PAUSE_FIRST_S
        while True:
            began = self._env.monotonic()
            if self._process is not None:
                await self._process.ended.wait()
                if self._process.was_removed:
                    raise Conflict(
                        f"the etcd member {self.config.name} was removed from its cluster; "
                        f"move {self.config.data_dir} away to join as a new one"
                    )
                if self._env.monotonic() - began < STEADY_S:
                    self._check_last_words(self._process)
                self._report_end(self._process)
            if self._env.monotonic() - began > STEADY_S:
                pause_s = RESTART_PAUSE_FIRST_S
            await self._env.sleep(pause_s * (1 + self._env.random()))
            pause_s = min(pause_s * 2, RESTART_PAUSE_MAX_S)
            try:
                await self.start()
            except Unavailable as error:
                log.debug("etcd member did not start: %s", error)

    def _check_last_words(self, process: _Process) -> None:
        """Raises DamagedMember when etcd ended because it cannot use its files: another start would not help."""
        if process.is_renewed or not process.has_failed or not process.damage or process.has_other_cause:
            return
        from yurt.storage.etcd.member_files.check import damaged

        folder = Path(self.config.data_dir)
        raise damaged(folder, f"etcd cannot use the files of its member below {folder}; it said: {process.damage}")

    def _report_end(self, process: _Process) -> None:
        if not process.is_renewed:  # `renew` reports whether the next start has other settings
            log.error("etcd ended (%s), it is started again; %s", process.exit_text, process.last_words)

    async def renew(self, config: EtcdMemberConfig) -> bool:
        """End etcd, so that `run` restarts it with other settings; the caller records them before it waits again.

        Returns False, and keeps the settings, unless etcd ended in order: then its files may lack its last commits.
        """
        process = self._process
        if process is None or process.ended.is_set():
            return False
        process.is_renewed = True
        if not await _end(process, renew_limit_s(self.config)):
            return False
        self.config = config
        log.info("etcd is started again with other settings")
        return True

    async def stop(self) -> None:
        """Terminate etcd, and kill it at the time limit; may be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        await _end(process)
        self.config.socket.unlink(missing_ok=True)

    async def _wait_listening(self, process: _Process) -> None:
        while not await self._is_listening():
            if process.ended.is_set():
                self._check_last_words(process)
                raise Unavailable(f"etcd ended at its start ({process.exit_text}); {process.last_words}")
            await self._env.sleep(PROBE_PAUSE_S)

    async def _is_listening(self) -> bool:
        endpoint = self.config.client_endpoint
        try:
            if endpoint.startswith("unix://"):
                _, writer = await asyncio.open_unix_connection(endpoint.removeprefix("unix://"))
            else:
                host, _, port = endpoint.rpartition("/")[2].rpartition(":")
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True


class _Process(asyncio.SubprocessProtocol):
    """One run of etcd: its output goes to this agent's log, its end sets an event."""

    def __init__(self, env: Env) -> None:
        self.ended = asyncio.Event()
        self.was_removed = False
        self.damage = ""
        """Its first line that reports damaged files."""
        self.has_other_cause = False
        """Whether it also reported another cause of its end, such as a full disk."""
        self.is_renewed = False
        """Whether it was terminated to be restarted with other settings."""
        self._is_crashing = False
        self._env = env
        self._rest = b""
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._reported_at: dict[str, float] = {}
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def pid(self) -> int:
        """etcd's pid."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def exit_text(self) -> str:
        """A description of the way in which it ended."""
        code = None if self._transport is None else self._transport.get_returncode()
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, with an error."""
        return self._transport is not None and (self._transport.get_returncode() or 0) > 0

    @property
    def was_terminated(self) -> bool:
        """Whether it ended in order at SIGTERM: etcd closes its files, and then ends by the same signal."""
        code = None if self._transport is None else self._transport.get_returncode()
        return code in (0, -signal.SIGTERM)

    @property
    def last_words(self) -> str:
        """Its last warnings."""
        return "it said: " + " | ".join(self._last) if self._last else "it said nothing"

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self._transport is not None and not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.send_signal(number)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self.send(signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process has started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)  # uvloop has a type of its own

    def pipe_data_received(self, _fd: int, data: bytes | str) -> None:
        """Handle its output."""
        assert isinstance(data, bytes)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LINE_BYTES_MAX:]
        for line in lines:
            self._on_line(line)

    def connection_lost(self, _error: Exception | None) -> None:
        """The process has ended, and its output was read completely."""
        if self._rest:
            self._on_line(self._rest)
        if self._transport is not None:
            self._transport.close()
        self.ended.set()

    def _on_line(self, line: bytes) -> None:
        level, text, message = _parsed(line)
        self.was_removed = self.was_removed or REMOVED in text
        if CRASH.match(text):
            self._is_crashing = True
        elif self._is_crashing and not line.startswith(b"{"):
            level = logging.DEBUG  # The stacks of all goroutines follow, hundreds of lines.
        if level == logging.DEBUG:
            log.debug("etcd: %s", text)
            return
        self._last.append(text)
        self.has_other_cause = self.has_other_cause or OTHER_CAUSES.search(text) is not None
        if not self.damage and (level >= logging.ERROR or CRASH.match(text)) and DAMAGE.search(text) is not None:
            self.damage = text
        now = self._env.monotonic()
        if now - self._reported_at.get(message, -SAME_LINE_PAUSE_S) < SAME_LINE_PAUSE_S:
            return
        if len(self._reported_at) >= SAME_LINES_MAX:
            self._reported_at.clear()
        self._reported_at[message] = now
        log.log(level, "etcd: %s", text)


async def _end(process: _Process, limit_s: float = STOP_LIMIT_S) -> bool:
    """Terminate a process, and kill it at the time limit; returns whether it ended by itself before that."""
    process.send(signal.SIGTERM)
    try:
        async with asyncio.timeout(limit_s):
            await process.ended.wait()
            return process.was_terminated
    except TimeoutError:
        log.warning("etcd does not end within %g s, it is killed", limit_s)
    finally:
        process.kill()
    await process.ended.wait()
    return False


async def _spawn(config: EtcdMemberConfig, command: list[str], *, env: Env) -> _Process:
    _, process = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Process(env),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=config.socket_folder,
        env=member_environment(),
        start_new_session=True,
    )
    return process


def _parsed(line: bytes) -> tuple[int, str, str]:
    """The level and text of a log line, and the part of the text that stays equal when the line repeats."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        text = line.decode("utf-8", "replace").strip()
        return logging.DEBUG if GRPC_LINE.match(text) else logging.WARNING, text, text
    message = str(fields.pop("msg", ""))
    level = LEVELS.get(str(fields.pop("level", "")), logging.DEBUG)
    if message in NOISE:
        level = logging.DEBUG
    for origin in ("ts", "caller", "stacktrace"):
        fields.pop(origin, None)
    values = ", ".join(f"{name}={value}" for name, value in fields.items())
    return level, f"{message} ({values})" if values else message, message


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
