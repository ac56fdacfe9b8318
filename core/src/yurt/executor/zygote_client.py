"""The agent's side of the zygote: starts it on demand, sends requests, and delivers the answers.

The zygote has no state of its own: when it dies, its shims and tasks continue, and the next start makes another zygote.
The life pipe is made once and stays open until `close`, even if the zygote dies: in a dev run its end kills all tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

from yurt.executor.process_identity import send_signal, start_time
from yurt.executor.spec import Failed, StartedProcess, decode_answer, take_lines
from yurt.sdk.errors import DriverError, RecoverableError

PROGRAM = Path(__file__).with_name("zygote.py")
READY_LIMIT_S = 10.0
START_LIMIT_S = 30.0
CLOSE_LIMIT_S = 12.0
READ_SIZE = 65536
SHARED: dict[tuple[bool, tuple[str, ...]], ZygoteClient] = {}


def acquire(*, dev: bool, cgroup_parents: tuple[str, ...], folder: str) -> ZygoteClient:
    """The zygote of this agent, for one more user; `folder` exists and serves the first start for a moment."""
    key = (dev, cgroup_parents)
    client = SHARED.get(key)
    if client is None or client.loop is not asyncio.get_running_loop():
        client = SHARED[key] = ZygoteClient(dev=dev, cgroup_parents=cgroup_parents, folder=folder)
    client.users += 1
    return client


def is_used(*, dev: bool, cgroup_parents: tuple[str, ...]) -> bool:
    """Whether an executor of this agent still uses its zygote."""
    return (dev, cgroup_parents) in SHARED


async def release(client: ZygoteClient) -> None:
    """Release one use; the zygote ends with the last one, and in a dev agent every task with it."""
    client.users -= 1
    if client.users == 0:
        for key in [key for key, each in SHARED.items() if each is client]:
            del SHARED[key]
        await client.close()


class ZygoteClient:
    """One zygote at a time, shared by all executors of an agent through `acquire` and `release`."""

    def __init__(self, *, dev: bool, cgroup_parents: tuple[str, ...], folder: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self._arguments = ("1" if dev else "0", folder, *cgroup_parents)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: asyncio.WriteTransport | None = None
        self._reply_fd = -1
        self._buffer = bytearray()
        self._waiting: dict[int, asyncio.Future[StartedProcess | Failed]] = {}
        self._numbers = itertools.count()
        self._ready: asyncio.Future[None] | None = None
        self._lifeline_read, self._lifeline_write = os.pipe()

    @property
    def pid(self) -> int:
        """The zygote's pid; 0 without one."""
        return self._process.pid if self._process else 0

    def next_id(self) -> int:
        """A new id for a request."""
        return next(self._numbers)

    async def request(self, request_id: int, message: bytes) -> StartedProcess | Failed:
        """Send a start request and wait for the answer; raises RecoverableError without one.

        A task whose starter has given up, or was cancelled, is killed when its answer comes after all.
        """
        await self.start()
        answer: asyncio.Future[StartedProcess | Failed] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        assert self._requests is not None
        self._requests.write(message)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                return await answer
        except TimeoutError:
            raise RecoverableError(
                f"the task's process was not started within {START_LIMIT_S:.0f} s; is the machine overloaded?"
            ) from None
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                abandon(answer.result())
            raise
        finally:
            self._waiting.pop(request_id, None)

    async def start(self) -> None:
        """Start the zygote unless it runs."""
        if self._lifeline_write < 0:
            raise DriverError("the executor is closed")
        if self._ready is None:
            await self._spawn()
        assert self._ready is not None
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise RecoverableError(
                f"the process that starts tasks was not ready within {READY_LIMIT_S:.0f} s"
            ) from None

    async def _spawn(self) -> None:
        """Start the program with its three pipes, in its own session so that Ctrl-C does not reach it."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        request_read, request_write = os.pipe()
        self._reply_fd, reply_write = os.pipe()
        child_fds = (request_read, reply_write, self._lifeline_read)
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds, once
            [sys.executable, "-I", "-S", "-E", str(PROGRAM), *map(str, child_fds), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=child_fds,
            start_new_session=True,
            cwd="/",
            env={},
        )
        os.close(request_read)
        os.close(reply_write)
        os.set_blocking(self._reply_fd, False)
        self._buffer.clear()
        loop.add_reader(self._reply_fd, self._on_replies)
        self._requests, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(request_write, "wb", buffering=0)
        )

    def _on_replies(self) -> None:
        """Deliver the answers; an empty read means that the zygote has ended."""
        try:
            data = os.read(self._reply_fd, READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._on_end()
            return
        self._buffer += data
        for line in take_lines(self._buffer):
            if not line:
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(None)
                continue
            answer = decode_answer(line)
            waiting = self._waiting.get(answer.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
            else:
                abandon(answer)

    def _on_end(self) -> None:
        """The zygote has ended: fail waiting requests; the next start launches a new one."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._reply_fd)
        os.close(self._reply_fd)
        self._reply_fd = -1
        if self._requests is not None and not self._requests.is_closing():
            self._requests.abort()
        code = self._process.wait() if self._process is not None else 0
        ready, self._ready, self._requests, self._process = self._ready, None, None, None
        error = RecoverableError(
            f"the process that starts tasks ended with exit code {code} ({sys.executable} {PROGRAM}); "
            "it is started again for the next task"
        )
        for waiting in (ready, *self._waiting.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)

    async def close(self) -> None:
        """End the zygote; in a dev agent this kills every task, and returns when they are gone."""
        if self._lifeline_write < 0:
            return
        os.close(self._lifeline_write)
        os.close(self._lifeline_read)
        self._lifeline_read = self._lifeline_write = -1
        process, self._process = self._process, None
        if process is None:
            return
        asyncio.get_running_loop().remove_reader(self._reply_fd)
        os.close(self._reply_fd)
        if self._requests is not None:
            self._requests.close()
        self._ready = self._requests = None
        await asyncio.get_running_loop().run_in_executor(None, end_process, process)


def abandon(answer: StartedProcess | Failed) -> None:
    """Drop a task that started after its caller gave up: its shim kills it."""
    if isinstance(answer, StartedProcess):
        send_signal(answer.shim_pid, answer.shim_start_time or start_time(answer.shim_pid), signal.SIGTERM)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Wait for the zygote's end, and kill it at the time limit."""
    try:
        process.wait(CLOSE_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class ZygoteLease:
    """One executor's use of the shared zygote, from its first start on."""

    def __init__(self, *, dev: bool, cgroup_parents: tuple[str, ...], folder: str) -> None:
        self._dev = dev
        self._cgroup_parents = cgroup_parents
        self._folder = folder
        self._client: ZygoteClient | None = None
        self._is_over = False

    @property
    def pid(self) -> int:
        """The zygote's pid; 0 before the first use."""
        return self._client.pid if self._client else 0

    def acquire(self) -> ZygoteClient:
        """The zygote; raises DriverError once the lease has ended."""
        if self._is_over:
            raise DriverError("the executor is closed")
        if self._client is None:
            self._client = acquire(dev=self._dev, cgroup_parents=self._cgroup_parents, folder=self._folder)
        return self._client

    def end(self) -> None:
        """Allow no further starts."""
        self._is_over = True

    async def release(self) -> None:
        """End the lease; the zygote ends with the last one."""
        self.end()
        client, self._client = self._client, None
        if client is not None:
            await release(client)
