"""The HTTP API without sockets: requests enter an agent's application already parsed, answers leave it as bytes."""

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
    """The status, headers and body of an agent's answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; as text when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


class _Writer(AbstractStreamWriter):
    """Collects what the application writes."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, chunk: Any) -> None:
        self.data += chunk

    async def write_eof(self, chunk: bytes = b"") -> None:
        self.data += chunk

    async def drain(self) -> None:
        """Never waits."""

    def enable_compression(self, *_: Any, **__: Any) -> None:
        """Ignored."""

    def enable_chunking(self) -> None:
        """Ignored."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Ignored: the response holds the headers."""

    def send_headers(self) -> None:
        """Ignored: the response holds the headers."""


class _Transport(asyncio.Transport):
    """The connection of a caller on the agent's own machine."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The caller's address."""
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def is_closing(self) -> bool:
        """Never: it stays open until the answer."""
        return False


class _Protocol(asyncio.Protocol):
    """The part of aiohttp's protocol that requests use."""

    ssl_context = None
    peername = ("127.0.0.1", 40_000)
    sockname = ("127.0.0.1", 4646)
    writer = None
    _reading_paused = False

    def __init__(self) -> None:
        self.transport = _Transport()

    def pause_reading(self) -> None:
        """Ignored: the whole body is present."""

    def resume_reading(self, **_: Any) -> None:
        """Ignored."""


class SimApi:
    """The API of one server's agent; calls run as tasks of its process and end with it."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self.app: web.Application | None = None
        self._loop = loop
        self._process = process

    async def call(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send one request; raises ConnectionResetError when the agent dies before it has answered."""
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
        """A request that another agent forwards (`OwnApi`)."""
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
