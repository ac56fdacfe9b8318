"""Runs a command with its streams inside a task of a plugin, by `ExecTaskStreaming`.

It uses gRPC's interface for threads: with the asyncio interface, a request after the command's end discards the unread
answers, including the exit code. A thread for each session is affordable, because sessions are few.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from yurt.goplugin.connection import OPTIONS, failure
from yurt.goplugin.messages import Message, Method, driver_message
from yurt.sdk.errors import DriverError
from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, TerminalSize

LOST_CODE = 137
REQUESTS_MAX = 16


class PluginExecSession:
    """One bidirectional stream with the plugin; the last answer holds the exit code."""

    def __init__(self, target: str, method: Method, owner: str) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._free_slots = asyncio.Semaphore(REQUESTS_MAX)
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="plugin-exec")
        self._channel = grpc.insecure_channel(target, options=OPTIONS)
        call = self._channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._answers: Any = call(self._request_stream())
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._has_input = True

    def _request_stream(self) -> Iterator[Message]:
        """The requests in order, consumed by gRPC's own thread."""
        while (request := self._requests.get()) is not None:
            yield request
            self._loop.call_soon_threadsafe(self._free_slots.release)

    async def start(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> None:
        """Start the command."""
        await self._send(setup={"task_id": task_id, "command": list(command), "tty": tty})

    async def _send(self, **fields: Any) -> None:
        """Send one request; requests after the command's end are dropped."""
        waiting = asyncio.ensure_future(self._free_slots.acquire())  # noqa: TID251 - awaited or cancelled here
        await asyncio.wait((waiting, self._code), return_when=asyncio.FIRST_COMPLETED)
        if self._code.done():
            waiting.cancel()
            return
        self._requests.put(driver_message("ExecTaskStreamingRequest", **fields))

    async def output(self) -> AsyncIterator[ExecOutput]:
        """The command's output as it arrives; the exit code is available when this ends."""
        try:
            while not self._code.done():
                answer = await self._loop.run_in_executor(self._pool, next, self._answers, None)
                if answer is None:
                    break
                for output in outputs_of(answer):
                    yield output
                if answer.exited:
                    result = answer.result
                    self._end(128 + result.signal if result.signal else result.exit_code)
        except grpc.RpcError as error:
            self._fail(failure(error, f"{self._owner}: exec", limit_s=0))
        self._end(LOST_CODE)

    def _end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def _fail(self, error: Exception) -> None:
        if not self._code.done():
            self._code.set_exception(error)
            self._code.exception()  # Nobody has to ask for it.

    async def write(self, data: bytes) -> None:
        """Write to the command's input."""
        if self._has_input:
            await self._send(stdin={"data": data})

    async def close_input(self) -> None:
        """Close the command's standard input."""
        if self._has_input:
            self._has_input = False
            await self._send(stdin={"close": True})

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of the command's terminal."""
        await self._send(tty_size={"height": size.height, "width": size.width})

    async def wait(self) -> int:
        """Wait for the exit code, which comes with the end of the output."""
        return await asyncio.shield(self._code)

    async def close(self) -> None:
        """End the stream; the plugin kills a command that still runs."""
        self._fail(DriverError(f"{self._owner}: the session was closed"))
        self._answers.cancel()
        self._requests.put(None)
        self._pool.shutdown(wait=False)
        self._channel.close()


def outputs_of(answer: Message) -> list[ExecOutput]:
    """The output in an answer, by stream."""
    parts = ((STDOUT, answer.stdout), (STDERR, answer.stderr))
    return [ExecOutput(data=part.data, stream=name) for name, part in parts if part.data]
