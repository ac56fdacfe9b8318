"""`alloc exec` on the node: connects a driver's session with the inputs and the frames of one caller.

A session ends with its command, its caller or its task, whichever ends first: the reader of the frames closes the
iterator, and that closes the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

from yurt.sdk.driver import Driver
from yurt.sdk.errors import DriverError, PermissionDenied, Unavailable
from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, ExecSession, StreamsExec, TerminalSize
from yurt.sdk.value import seconds
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest

log = logging.getLogger(__name__)

SESSIONS_MAX = 500
STARTS_MAX = 8
"""The number of commands of one driver that start at the same time; the others wait.

Each start needs a process of its own: a hundred at once would delay each other beyond their time limits.
"""
WHOLE_LIMIT = seconds(3600)
NO_ISOLATION = "none"
NEEDS_NODE_EXEC = (
    "Permission denied: the driver of this task does not isolate it from the node; a command in it also needs "
    "alloc-node-exec in its namespace"
)

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class ExecSessions:
    """The exec sessions of one client, bounded in number."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._count = 0
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(STARTS_MAX))

    async def run(
        self, driver: Driver, task_id: str, request: ExecRequest, inputs: AsyncIterator[ExecInput]
    ) -> AsyncGenerator[ExecFrame]:
        """Run a command; frames as described in `yurt.structs.exec`."""
        is_node_exec = driver.capabilities.fs_isolation == NO_ISOLATION
        if is_node_exec and not request.is_node_exec_allowed:
            raise PermissionDenied(NEEDS_NODE_EXEC)
        if self._count >= SESSIONS_MAX:
            raise Unavailable(f"this node runs {SESSIONS_MAX} exec sessions already; end one, or try again later")
        self._count += 1
        try:
            async with self._turns[driver.name]:
                session = await begin(driver, task_id, request)
            log.info("exec: alloc=%s task=%s command=%s", request.alloc_id, request.task, request.command[:1])
            feeding = self._spawn(f"input of a command in {request.alloc_id[:8]}", feed(session, inputs))
            try:
                yield ExecFrame(is_node_exec=is_node_exec)
                async for frame in frames_of(session, is_terminal=request.tty):
                    yield frame
            finally:
                feeding.cancel()
                await session.close()
        finally:
            self._count -= 1


async def begin(driver: Driver, task_id: str, request: ExecRequest) -> ExecSession:
    """Start the driver's session; raises DriverError with the reason when the driver does not support it."""
    if not driver.capabilities.exec and not isinstance(driver, StreamsExec):
        raise DriverError(f"the driver {driver.name} runs no commands in its tasks")
    if isinstance(driver, StreamsExec):
        return await driver.exec_stream(task_id, request.command, tty=request.tty)
    if request.tty:
        raise DriverError(f"the driver {driver.name} gives commands no terminal; run it without one (-t=false)")
    return WholeSession(driver, task_id, request.command)


async def feed(session: ExecSession, inputs: AsyncIterator[ExecInput]) -> None:
    """Send input to a command until the caller disconnects, then end the command."""
    async for item in inputs:
        if item.size is not None:
            await session.resize(item.size)
        if item.data:
            await session.write(item.data)
        if item.is_last:
            await session.close_input()
    await session.close()


async def frames_of(session: ExecSession, *, is_terminal: bool) -> AsyncIterator[ExecFrame]:
    """The session's output as frames, after the first one."""
    async for piece in session.output():
        yield ExecFrame(stream=piece.stream, data=piece.data)
    code = await session.wait()
    for stream in (STDOUT,) if is_terminal else (STDOUT, STDERR):
        yield ExecFrame(stream=stream, is_last=True)
    yield ExecFrame(exit_code=code)


class WholeSession:
    """A session of a driver without streams: it takes no input, and its output comes after the command's end."""

    def __init__(self, driver: Driver, task_id: str, command: tuple[str, ...]) -> None:
        self._running = asyncio.ensure_future(driver.exec_task(task_id, command, timeout=WHOLE_LIMIT))  # noqa: TID251 - `close` ends it

    async def output(self) -> AsyncIterator[ExecOutput]:
        """The output on both streams, once the command has ended."""
        result = await asyncio.shield(self._running)
        for stream, data in ((STDOUT, result.stdout), (STDERR, result.stderr)):
            if data:
                yield ExecOutput(data=data, stream=stream)

    async def write(self, data: bytes) -> None:
        """Discard the input."""

    async def close_input(self) -> None:
        """Does nothing: the session takes no input."""

    async def resize(self, size: TerminalSize) -> None:
        """Does nothing: the session has no terminal."""

    async def wait(self) -> int:
        """Wait for the command's end; returns its exit code."""
        return (await asyncio.shield(self._running)).exit_code

    async def close(self) -> None:
        """End the command."""
        self._running.cancel()
        await asyncio.wait([self._running])
