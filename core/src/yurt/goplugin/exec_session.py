"""A command that runs inside a task of a plugin, with its streams: `ExecTaskStreaming` as one of our sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from yurt.goplugin.connection import failure
from yurt.goplugin.messages import Message, driver_message
from yurt.sdk.errors import DriverError
from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, TerminalSize

LOST_CODE = 137


class PluginExecSession:
    """One conversation with the plugin; the exit code comes with its last answer."""

    def __init__(self, stream: Any, owner: str) -> None:
        self._stream = stream
        self._owner = owner
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._has_input = True

    async def start(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> None:
        """Ask for the command; raises what the plugin refuses it with at once."""
        setup = {"task_id": task_id, "command": list(command), "tty": tty}
        await self._send(setup=setup)

    async def _send(self, **fields: Any) -> None:
        """One request; what comes after the end of the command is dropped."""
        if self._code.done():
            return
        try:
            await self._stream.write(driver_message("ExecTaskStreamingRequest", **fields))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            self._has_input = False

    async def output(self) -> AsyncIterator[ExecOutput]:
        """What the command writes; the exit code is known when this ends."""
        try:
            while (answer := await self._stream.read()) is not grpc.aio.EOF:
                for output in outputs_of(answer):
                    yield output
                if answer.exited:
                    result = answer.result
                    self._end(128 + result.signal if result.signal else result.exit_code)
                    return
        except grpc.aio.AioRpcError as error:
            if not self._code.done():
                self._code.set_exception(failure(error, f"{self._owner}: exec", limit_s=0))
                self._code.exception()
            return
        self._end(LOST_CODE)

    def _end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def write(self, data: bytes) -> None:
        """Give it input."""
        if self._has_input:
            await self._send(stdin={"data": data})

    async def close_input(self) -> None:
        """Tell it that no more input will come."""
        if self._has_input:
            self._has_input = False
            await self._send(stdin={"close": True})

    async def resize(self, size: TerminalSize) -> None:
        """Its terminal has another size now."""
        await self._send(tty_size={"height": size.height, "width": size.width})

    async def wait(self) -> int:
        """Wait for its end, which comes with the end of the output."""
        return await asyncio.shield(self._code)

    async def close(self) -> None:
        """End the conversation; the plugin kills what still runs."""
        self._stream.cancel()
        if not self._code.done():
            self._code.set_exception(DriverError(f"{self._owner}: the session was closed"))
            self._code.exception()


def outputs_of(answer: Message) -> list[ExecOutput]:
    """What an answer carries."""
    parts = ((STDOUT, answer.stdout), (STDERR, answer.stderr))
    return [ExecOutput(data=part.data, stream=name) for name, part in parts if part.data]
