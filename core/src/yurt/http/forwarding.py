"""Requests that only a server can answer, on an agent that runs none: passed on over the agent's connection.

The server's end puts the request to its own HTTP API, so a client agent answers exactly as its servers do, streams
included. Websockets are not passed on: a command in a task is run through a server's address.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import Value, no_entries

FORWARDED = "X-Yurt-Forwarded"
"""Marks a request that was passed on once; it is not passed on again."""
PIECE_BYTES = 64 * 1024
_OWN_HOP = frozenset({
    "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length",
    "proxy-authenticate", "proxy-authorization", "date", "server",
})  # fmt: skip


class ApiRequest(Value):
    """A request as it was received: its path with the query, undecoded."""

    method: str
    path: str
    headers: Mapping[str, str] = no_entries()
    body: bytes = b""


class ApiPart(Value):
    """A part of an answer: first the status and the headers, then pieces of the body."""

    status: int = 0
    headers: Mapping[str, str] = no_entries()
    data: bytes = b""


class ApiPort(Protocol):
    """The HTTP API of a server, seen from another agent."""

    def ask(self, request: ApiRequest) -> AsyncGenerator[ApiPart]:
        """The answer in parts; raises Unavailable when there is none."""
        ...


class OwnApi:
    """The API of this agent, for those who are connected to it."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, request: ApiRequest) -> AsyncGenerator[ApiPart]:
        """Put the request to the agent's own HTTP address."""
        if not request.path.startswith("/"):
            raise Invalid(f"{request.path[:64]!r} is no path of the API")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=(hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE),
            )
        headers = {**_passed(request.headers), FORWARDED: "1"}
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._address}{request.path}", encoded=True),
                headers=headers,
                data=request.body or None,
                allow_redirects=False,
                ssl=self._tls or True,
            ) as answer:
                yield ApiPart(status=answer.status, headers=_passed(dict(answer.headers)))
                async for piece in answer.content.iter_chunked(PIECE_BYTES):
                    yield ApiPart(data=piece)
        except aiohttp.ClientError as error:
            raise Unavailable(f"the server's own API does not answer: {error}") from None

    async def close(self) -> None:
        """Free the connections."""
        if self._session is not None:
            await self._session.close()


async def forward(request: web.Request, api: ApiPort) -> web.StreamResponse:
    """Answer as a server does; raises Unavailable when none can be reached, or it was passed on already."""
    if FORWARDED in request.headers:
        raise Unavailable("No known servers: this agent runs no server")
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        raise Unavailable("This agent runs no server and passes no websockets on; use the address of a server")
    asked = ApiRequest(
        method=request.method,
        path=request.raw_path,
        headers=_passed(dict(request.headers)),
        body=await request.read(),
    )
    response: web.StreamResponse | None = None
    async with aclosing(api.ask(asked)) as parts:
        async for part in parts:
            if response is None:
                response = web.StreamResponse(status=part.status, headers=part.headers)
                await response.prepare(request)
            else:
                await response.write(part.data)
    if response is None:
        raise Unavailable("the server ended its answer before it began")
    await response.write_eof()
    return response


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OWN_HOP}
