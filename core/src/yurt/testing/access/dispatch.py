"""Sends a request through the whole application without a socket, because opening one costs more than most requests.

The application's own router, middlewares and handlers answer; only the bytes of HTTP are left out. Streams that do not
end and websockets are tested over a real connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.payload import Payload
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

HOST = "127.0.0.1:4646"


class Answered(NamedTuple):
    """The status and the text of an answer; the text is empty for a stream that does not end."""

    status: int
    text: str


class _Transport:
    """A stand-in for the connection of a caller."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """The address of the caller; None for everything else."""
        return ("127.0.0.1", 0) if name == "peername" else default

    def is_closing(self) -> bool:
        """Never: the connection stays open."""
        return False

    def close(self) -> None:
        """Called when an answer is aborted."""


class _Protocol:
    """A stand-in for aiohttp's protocol; `make_mocked_request` would take longer than most answers."""

    peername = ("127.0.0.1", 0)
    sockname = ("127.0.0.1", 4646)
    ssl_context = None
    max_field_size = max_line_length = 8190
    max_headers = 128

    def __init__(self, writer: _CapturingWriter) -> None:
        self.writer = writer
        self.transport = writer.transport


class _CapturingWriter:
    """Collects the chunks of a streamed answer."""

    transport = _Transport()

    def __init__(self) -> None:
        self.data = bytearray()
        self.buffer_size = self.output_size = 0
        self.length: int | None = None

    async def write(self, chunk: bytes, *_: object, **__: object) -> None:
        """Keep a chunk."""
        self.data += chunk

    async def write_eof(self, chunk: bytes = b"") -> None:
        """Keep the last chunk."""
        self.data += chunk

    async def write_headers(self, *_: object) -> None:
        """Headers are not looked at."""

    async def drain(self) -> None:
        """Everything is taken at once."""

    def send_headers(self) -> None:
        """Headers are not looked at."""

    def enable_chunking(self) -> None:
        """Chunks are kept as they are."""

    def enable_compression(self, *_: object) -> None:
        """Nobody accepts compressed answers here."""


async def dispatch(
    app: web.Application, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> Answered:
    """Send one request to the application and return its answer."""
    loop = asyncio.get_running_loop()
    given = {hdrs.HOST: HOST, **headers}
    payload = EMPTY_PAYLOAD
    if body is not None:
        given[hdrs.CONTENT_LENGTH] = str(len(body))
        payload = StreamReader(BaseProtocol(loop), limit=2**16, loop=loop)
        payload.feed_data(body)
        payload.feed_eof()
    written, task = _CapturingWriter(), cast(asyncio.Task[None], asyncio.current_task())
    protocol = cast(web.RequestHandler, _Protocol(written))
    request = app._make_request(
        _message(method, path, given), payload, protocol, cast(AbstractStreamWriter, written), task
    )
    # A task of its own, as each request has: its context and its end are its own.
    response = await asyncio.create_task(_answered(app, request))
    return Answered(response.status, _text(response, written))


def _message(method: str, path: str, headers: Mapping[str, str]) -> RawRequestMessage:
    """The parsed request as aiohttp's parser would return it."""
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    named = CIMultiDictProxy(CIMultiDict(headers))
    return RawRequestMessage(
        method=method, path=path, version=HttpVersion11, headers=named, raw_headers=raw, should_close=False,
        compression=None, upgrade=False, chunked=False, url=URL(path),
    )  # fmt: skip


async def _answered(app: web.Application, request: web.Request) -> web.StreamResponse:
    try:
        return await app._handle(request)
    except web.HTTPException as answer:
        return answer


def _text(response: web.StreamResponse, written: _CapturingWriter) -> str:
    if response.prepared or not isinstance(response, web.Response):
        return written.data.decode(errors="replace")
    body = response.body
    if isinstance(body, Payload):
        return body.decode(errors="replace")
    return bytes(body or b"").decode(errors="replace")
