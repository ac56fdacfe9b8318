"""Connections over which a test sends bytes to the API, and what they were answered by."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import add_audit, make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.protocol import ApiProtocol, Pace
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.http.plain_reads.fast_path import FAST_PATH, FastPath
from yurt.server.server import Server
from yurt.testing.http_api import Api, add_ready_node, serving

OPTIONS = {**HTTP_OPTIONS, "access_log": None}
"""The options of an agent that logs no requests."""
HEADERS = "Host: 127.0.0.1\r\nUser-Agent: test\r\n"
DATE = re.compile(rb"\r\nDate: [^\r]+")
JOB = "/v1/job/web"


def head(target: str, headers: str = HEADERS) -> bytes:
    return f"GET {target} HTTP/1.1\r\n{headers}\r\n".encode()


class Wire:
    """One connection, over which bytes are sent and answers read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """The whole answer."""
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> bytes:
        """The next answer; b"" when the connection has ended."""
        async with asyncio.timeout(10):
            try:
                found = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as end:
                return end.partial
            length = re.search(rb"Content-Length: (\d+)", found)
            return found + await self._reader.readexactly(int(length[1]) if length else 0)

    async def is_ended(self) -> bool:
        """Whether the server has closed it."""
        return not await self.answer()

    async def status(self, request: bytes) -> int:
        return int((await self.ask(request)).split()[1])

    async def json(self, target: str) -> Any:
        return json.loads((await self.ask(head(target))).partition(b"\r\n\r\n")[2])


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_reading = True

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to do."""


class Served:
    """An application behind connections of the server's own kind."""

    def __init__(self, app: web.Application, runner: web.AppRunner, port: int) -> None:
        self.fast_path: FastPath = app[FAST_PATH]
        self.usual = 0
        """Requests that took the usual way."""
        self.wires: list[Wire] = []
        self._port = port
        assert runner.server is not None
        make = runner.server.request_factory

        def counted(*parts: Any) -> web.BaseRequest:
            self.usual += 1
            return make(*parts)

        runner.server.request_factory = counted
        self._server = runner.server

    def connection(self) -> tuple[ApiProtocol, Transport]:
        """The server's end of a connection whose bytes a test passes on itself."""
        connection, transport = Connections(options=OPTIONS).make(self._server), Transport()
        connection.connection_made(transport)
        return connection, transport

    @property
    def connections(self) -> list[ApiProtocol]:
        """The server's ends of the open connections."""
        return [each for each in self._server.connections if isinstance(each, ApiProtocol)]

    async def end(self, limit_s: float) -> None:
        """End all connections as an agent that stops does."""
        self._server.pre_shutdown()
        await self._server.shutdown(limit_s)

    async def connect(self) -> Wire:
        self.wires.append(wire := Wire(*await asyncio.open_connection("127.0.0.1", self._port)))
        return wire

    async def learnt(self, *targets: str, headers: str = HEADERS) -> Wire:
        """A connection whose reads of these targets are answered past aiohttp."""
        wire = await self.connect()
        for target in targets * 2:  # the first one may wait, until the module of its handler is imported
            assert await wire.status(head(target, headers)) == 200
        usual = self.usual
        for target in targets:
            assert await wire.status(head(target, headers)) == 200
        assert self.usual == usual, "they were answered past aiohttp"
        return wire


@asynccontextmanager
async def serving_web_job() -> AsyncIterator[Api]:
    """A server whose job "web" has an allocation on its one node."""
    async with serving() as made:
        await add_ready_node(made)
        assert (await made.register()).status == 200
        await made.wait_until(f"{JOB}/allocations", bool)
        yield made


@asynccontextmanager
async def served(
    server: Server, *, limit: int = 0, pace: Pace | None = None, audit: Any = None, keepalive_timeout: float = 60.0,
    **facts: Any,
) -> AsyncIterator[Served]:  # fmt: skip
    app = make_app(server.http, None, AgentInfo(name="test", **facts))
    if audit is not None:
        add_audit(app, audit)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    options: Mapping[str, Any] = {**OPTIONS, "keepalive_timeout": keepalive_timeout}
    connections = Connections(limit, strangers=app[STRANGERS], options=options, pace=pace)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    await ServedAddress(runner, listening, connections, tls=None, handshake_s=0).start()
    made = Served(app, runner, listening.getsockname()[1])
    try:
        yield made
    finally:
        for wire in made.wires:
            wire.writer.close()
        await runner.cleanup()
