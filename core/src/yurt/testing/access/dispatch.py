"""A request through the whole application without a connection: what a socket and its parser cost is most of a request.

The application's own router, middlewares and handlers answer; only the bytes of HTTP are left out. What differs on a
connection (streams that do not end, websockets) is asked over one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import StreamReader, hdrs, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.payload import Payload
from aiohttp.test_utils import make_mocked_request

HOST = "127.0.0.1:4646"


class Answered(NamedTuple):
    """The status and the text of an answer; no text of one that does not end."""

    status: int
    text: str


class _Transport:
    """A connection of which nothing is known."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """The address of the caller, and nothing else."""
        return ("127.0.0.1", 0) if name == "peername" else default

    def is_closing(self) -> bool:
        """It lasts."""
        return False

    def close(self) -> None:
        """An answer breaks off."""


class _Written:
    """What a streamed answer has written."""

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
    """What the application answers."""
    loop = asyncio.get_running_loop()
    given = {hdrs.HOST: HOST, **headers}
    options: dict[str, Any] = {}
    if body is not None:
        given[hdrs.CONTENT_LENGTH] = str(len(body))
        payload = StreamReader(BaseProtocol(loop), limit=2**16, loop=loop)
        payload.feed_data(body)
        payload.feed_eof()
        options["payload"] = payload
    written = _Written()
    request = make_mocked_request(
        method, path, given, app=app, writer=written, transport=_Transport(), client_max_size=2**23, **options
    )
    # A task of its own, as each request has: its context and its end are its own.
    response = await asyncio.create_task(_answered(app, request))
    return Answered(response.status, _text(response, written))


async def _answered(app: web.Application, request: web.Request) -> web.StreamResponse:
    try:
        return await app._handle(request)
    except web.HTTPException as answer:
        return answer


def _text(response: web.StreamResponse, written: _Written) -> str:
    if response.prepared or not isinstance(response, web.Response):
        return written.data.decode(errors="replace")
    body = response.body
    if isinstance(body, Payload):
        return body.decode(errors="replace")
    return bytes(body or b"").decode(errors="replace")
