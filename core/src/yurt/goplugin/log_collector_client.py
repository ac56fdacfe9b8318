"""The agent's side of the log collector: starts it on demand and sends it requests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from yurt.executor import process_identity
from yurt.goplugin import log_collector
from yurt.goplugin.spawn import WatchedProcess, spawn
from yurt.sdk.driver import LogRotation
from yurt.sdk.errors import RecoverableError
from yurt.sdk.value import Value

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 10.0
START_LIMIT_S = 10.0
START_POLL_S = 0.02
ATTEMPTS_MAX = 4
OUTPUTS = ("stdout", "stderr")


class TaskLogs(Value):
    """The FIFOs to which a task of a plugin writes, and its log files; `name` is the collector's name of the task."""

    name: str
    fifos: tuple[str, str]
    bases: tuple[str, str]
    rotation: LogRotation = LogRotation()


class LogCollector:
    """One collector of one folder."""

    def __init__(self, folder: str, *, is_dev: bool = False) -> None:
        self._folder = Path(folder)
        self._is_dev = is_dev
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._logs: dict[str, TaskLogs] = {}
        self._process: WatchedProcess | None = None

    def plan(self, task_id: str, *, logs_dir: str, task_name: str, rotation: LogRotation) -> TaskLogs:
        """The FIFOs and files of a task."""
        name = hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
        return TaskLogs(
            name=name,
            fifos=(str(self._folder / f"{name}.stdout"), str(self._folder / f"{name}.stderr")),
            bases=(f"{logs_dir}/{task_name}.stdout", f"{logs_dir}/{task_name}.stderr"),
            rotation=rotation,
        )

    async def open(self, logs: TaskLogs) -> None:
        """Start reading for a task; idempotent."""
        self._logs[logs.name] = logs
        await self._ask(open_request(logs))

    async def drain(self, logs: TaskLogs) -> None:
        """Wait until a task's written output is in its log files."""
        await self._ask({"op": "drain", "id": logs.name})

    async def close_task(self, logs: TaskLogs) -> None:
        """Stop reading for a task."""
        self._logs.pop(logs.name, None)
        await self._ask({"op": "close", "id": logs.name})

    async def close(self) -> None:
        """Disconnect from the collector, which continues while it has tasks."""
        self._leave()
        self._hang_up()

    def _leave(self) -> None:
        if self._process is not None:
            self._process.leave()

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    async def _ask(self, request: dict[str, Any]) -> None:
        """Make a request; restart a killed collector with all its tasks first."""
        async with self._lock:
            failure: Exception | None = None
            for attempt in range(ATTEMPTS_MAX):
                before = [open_request(logs) for logs in self._logs.values()] if attempt else []
                failure = await self._try([*before, request])
                if failure is None:
                    return
                self._hang_up()
                await asyncio.sleep(START_POLL_S)
            raise RecoverableError(f"the collector of logs does not answer: {failure or 'time is over'}")

    async def _try(self, requests: list[dict[str, Any]]) -> Exception | None:
        """Make some requests in a row; returns a failure of the collector itself."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                for request in requests:
                    await self._exchange(request)
        except (OSError, EOFError, TimeoutError) as error:
            return error
        return None

    async def _exchange(self, request: dict[str, Any]) -> None:
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise EOFError("it ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RecoverableError(f"the collector of logs failed: {answer['error']}")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the running collector, or to a new one."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(OSError):
            return await self._dial()
        arguments = [str(self._folder), *(["dev"] if self._is_dev else [])]
        command = [sys.executable, "-I", "-S", "-E", log_collector.__file__, *arguments]
        pid = spawn(command, env=os.environ)
        self._leave()
        self._process = WatchedProcess(pid, process_identity.start_time(pid))
        async with asyncio.timeout(START_LIMIT_S):
            while True:
                with contextlib.suppress(OSError):
                    return await self._dial()
                await asyncio.sleep(START_POLL_S)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect through the folder's descriptor, because a socket path is limited to 107 bytes."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(f"/proc/self/fd/{folder}/{log_collector.SOCKET_NAME}")
            made.setblocking(False)
            return await asyncio.open_unix_connection(sock=made)
        except OSError:
            made.close()
            raise
        finally:
            os.close(folder)


def open_request(logs: TaskLogs) -> dict[str, Any]:
    """The request to read for a task."""
    streams = [list(pair) for pair in zip(logs.fifos, logs.bases, strict=True)]
    limits = {"max_files": logs.rotation.max_files, "max_bytes": logs.rotation.max_bytes}
    return {"op": "open", "id": logs.name, "streams": streams, **limits}
