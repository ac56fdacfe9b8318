"""The HTTP API without sockets: requests enter an agent's application as parsed calls, answers leave it as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from yurt.http.api_port import PIECE_BYTES, ApiPart, ApiRequest
from yurt.http.authentication import sealed_origin
from yurt.http.forwarding_headers import BY_CLIENT, FORWARDED, ORIGIN
from yurt.testing.sim.loop import Process, SimLoop

BODY_MAX = 1 << 26


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; the text where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


class _Writer(AbstractStreamWriter):
    """Keeps what the application writes."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, chunk: Any) -> None:
        self.data += chunk

    async def write_eof(self, chunk: bytes = b"") -> None:
        self.data += chunk

    async def drain(self) -> None:
        """Nothing is full."""

    def enable_compression(self, *_: Any, **__: Any) -> None:
        """Nothing is compressed."""

    def enable_chunking(self) -> None:
        """Nothing is in chunks."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """They are in the response."""

    def send_headers(self) -> None:
        """They are in the response."""


class _Transport(asyncio.Transport):
    """The connection of a caller on the agent's own machine."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where it comes from."""
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def is_closing(self) -> bool:
        """It stays open until the answer."""
        return False


class _Protocol(asyncio.Protocol):
    """The protocol of such a connection, as far as requests ask it."""

    ssl_context = None
    peername = ("127.0.0.1", 40_000)
    sockname = ("127.0.0.1", 4646)
    writer = None
    _reading_paused = False

    def __init__(self) -> None:
        self.transport = _Transport()

    def pause_reading(self) -> None:
        """The body is here as a whole."""

    def resume_reading(self, **_: Any) -> None:
        """The same."""


class SimApi:
    """The API of one server's agent. Calls run as work of its process, and end with that."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self.app: web.Application | None = None
        self._loop = loop
        self._process = process

    async def call(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """One request; raises ConnectionResetError when the agent ends before it has answered."""
        app, process = self.app, self._process
        if app is None or process.is_dead:
            raise ConnectionRefusedError("connection refused")
        answering = self._loop.spawn(process, _answered(app, method, path, body, headers), f"{method} {path}")
        try:
            await asyncio.wait({answering})
        except asyncio.CancelledError:
            answering.cancel()
            raise
        if process.is_dead or answering.cancelled():
            raise ConnectionResetError("the connection was reset")
        answer: Answer = answering.result()
        return answer

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        """A request that another agent passes on (`OwnApi`)."""
        data = b"".join([piece async for piece in body]) if request.has_body else None
        headers = {FORWARDED: BY_CLIENT} | dict(request.headers) | {ORIGIN: sealed_origin(request.origin)}
        assert self.app is not None
        answer = await _answered(self.app, request.method, request.path, data, headers)
        yield ApiPart(status=answer.status, headers=answer.headers)
        for start in range(0, len(answer.body), PIECE_BYTES):
            yield ApiPart(data=answer.body[start : start + PIECE_BYTES])

    async def close(self) -> None:
        """Nothing is held."""


async def _answered(
    app: web.Application, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Answer:
    loop, writer = asyncio.get_running_loop(), _Writer()
    protocol: Any = _Protocol()
    payload = StreamReader(protocol, BODY_MAX, loop=loop)
    given = CIMultiDict(headers)
    given.setdefault("Host", "127.0.0.1:4646")
    if body is not None:
        given["Content-Length"] = str(len(body))
        payload.feed_data(body)
    payload.feed_eof()
    raw = tuple((name.encode(), value.encode()) for name, value in given.items())
    url = URL.build(path=path.partition("?")[0], query_string=path.partition("?")[2], encoded=True)
    message = RawRequestMessage(
        method, path, HttpVersion11, CIMultiDictProxy(given), raw, False, None, False, False, url
    )
    task: Any = asyncio.current_task()
    request = web.Request(message, payload, protocol, writer, task, loop, client_max_size=BODY_MAX)
    response = await app._handle(request)
    if not response.prepared:
        await response.prepare(request)
    if isinstance(response, web.Response):
        data = response.body if isinstance(response.body, bytes | bytearray) else b""
        return Answer(response.status, _plain(response.headers), bytes(data))
    await response.write_eof()
    return Answer(response.status, _plain(response.headers), bytes(writer.data))


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers.items()}
