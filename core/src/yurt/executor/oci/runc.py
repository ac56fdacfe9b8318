"""Calls `runc`: runs a command in a container, deletes a container. Each call is a process of about 20 ms."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from yurt.executor.exec_session import ExecContext, ProcessSession, start_session
from yurt.executor.polling import until
from yurt.executor.process_context import outcome, remove_file
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import DriverError
from yurt.sdk.value import NANOSECONDS, Duration, seconds

PROGRAM = "runc"
FIX = "apt install runc"
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
CALL_LIMIT = seconds(20)
SECCOMP_LIBRARY = b"libseccomp"
EXEC_START_LIMIT_S = 20.0


def find_program() -> str:
    """The path of runc; empty when it is not installed."""
    return shutil.which(PROGRAM, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}") or ""


class RuncMessage(msgspec.Struct, frozen=True):
    """A line of runc's log."""

    level: str = ""
    msg: str = ""


def failure_in(log: str) -> str:
    """The failure in runc's log; empty without one."""
    found = ""
    for line in log.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            message = msgspec.json.decode(line, type=RuncMessage)
            found = message.msg if message.level in ("error", "fatal") else found
    return found


def read_failure(log_file: Path) -> str:
    """The failure in a log file, if any."""
    try:
        return failure_in(log_file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


class Runc:
    """runc with the folder of its containers."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self._filter_problem: str | None = None

    def command(self, *words: str, log_file: Path | None = None) -> tuple[str, ...]:
        """A runc command line."""
        log = ("--log", str(log_file), "--log-format", "json") if log_file else ()
        return (self.program, "--root", str(self.folder), *log, *words)

    def has_record(self, container: str) -> bool:
        """Whether runc has a record of a container."""
        return (self.folder / container).exists()

    async def filter_problem(self) -> str:
        """The reason why runc cannot filter system calls; empty when it can. Queried once."""
        if self._filter_problem is None:
            result = await self._call((self.program, "--version"), timeout=CALL_LIMIT)
            is_able = SECCOMP_LIBRARY in result.stdout
            self._filter_problem = "" if is_able else "this runc was built without seccomp"
        return self._filter_problem

    async def delete(self, container: str) -> None:
        """Kill a container and free its resources; does nothing for an absent one."""
        if not self.has_record(container):
            return
        result = await self._call(self.command("delete", "--force", container), timeout=CALL_LIMIT)
        if result.exit_code != 0 and self.has_record(container):
            reason = result.stderr.decode(errors="replace").strip()
            raise DriverError(f"runc cannot delete the container {container}: {reason}")

    async def exec_stream(
        self, container: str, process: dict[str, Any], *, scratch: Path, tty: bool
    ) -> ProcessSession:  # fmt: skip
        """Start a process in a container; raises DriverError when it cannot run."""
        base = scratch / f"exec-{secrets.token_hex(8)}"  # files of an agent that was killed may be there still
        process_file, pid_file, log_file = (base.with_suffix(suffix) for suffix in (".json", ".pid", ".log"))
        write_private(process_file, msgspec.json.encode({**process, "terminal": tty}))
        words = ("exec", "--process", str(process_file), "--pid-file", str(pid_file), container)
        try:
            command, context = self.command(*words, log_file=log_file), ExecContext(env={}, cwd="/")
            session = await start_session(command, context, tty=tty, other_leaders=lambda: pids_in(pid_file))
        except BaseException:
            remove_file(str(process_file))
            raise
        session.on_close += [partial(remove_file, str(path)) for path in (process_file, pid_file, log_file)]
        try:
            await until(lambda: pid_file.exists() or session.has_ended, EXEC_START_LIMIT_S)
            failure = read_failure(log_file)
            if failure or not pid_file.exists():
                reason = failure or f"runc did not start it within {EXEC_START_LIMIT_S:g} s"
                raise DriverError(f'cannot run "{process["args"][0]}" in the task: {reason}')
        except BaseException:
            await session.close()
            raise
        return session

    async def _call(self, words: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run runc to its end; kills it and raises TimeoutError after `timeout`."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        try:
            async with asyncio.timeout(timeout / NANOSECONDS):
                return await outcome(process)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def pids_in(pid_file: Path) -> list[int]:
    """The pid in a file, if any."""
    try:
        return [int(pid_file.read_text(encoding="ascii"))]
    except (OSError, ValueError):
        return []


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the agent's user can read, because it holds a task's environment."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
