"""Forwards requests to another agent over the connection between agents.

The far end puts a request to its own HTTP API, so the answer is exactly its own, streams included. An agent without a
server passes on to its server, and a server to the one that leads. Nothing is passed on further than that: a request
says how far it has come. Websockets are passed on too (`yurt.http.forwarding.forwarded_sockets`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from urllib.parse import quote

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from yurt.access import Through
from yurt.http.api_port import PIECE_BYTES, ApiPart, ApiPort, ApiRequest
from yurt.http.authentication import is_encodable, origin_of, sealed_origin, session_text, through_node, through_server
from yurt.http.call import CONTEXT
from yurt.http.edge.browsers import is_of_browser
from yurt.http.edge.connections import OwnSockets
from yurt.http.errors import NotLed, Refused
from yurt.http.forwarding_headers import (
    BY_CLIENT,
    BY_REGION,
    BY_SERVER,
    FIRST_HOP,
    FORWARDED,
    FROM_NODE,
    FROM_REGION,
    NOT_LEADING,
    ORIGIN,
    OWN_HEADERS,
    SECOND_HOP,
)
from yurt.sdk.errors import Invalid, Reason, Unavailable
from yurt.sdk.value import replace
from yurt.server.failures import NO_LEADER

KEPT_BYTES = 8 * 1024 * 1024
"""A body up to this is read as a whole before it is passed on."""
NO_SERVERS = "No known servers: this agent runs no server"
_NOT_PASSED = frozenset({
    "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length",
    "proxy-authenticate", "proxy-authorization", "date", "server", ORIGIN.lower(),
})  # fmt: skip


class OwnApi:
    """The API of this agent, for connected agents."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, sockets: OwnSockets | None = None) -> None:
        self._address = address
        self._tls = tls
        self._sockets = sockets or OwnSockets()
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        """Put the request to the agent's own HTTP address."""
        if not request.path.startswith("/"):
            raise Invalid(f"{request.path[:64]!r} is not a path of the API")
        headers = {FORWARDED: BY_CLIENT} | _passed(request.headers) | {ORIGIN: sealed_origin(request.origin)}
        if request.is_socket:
            from yurt.http.forwarding.forwarded_sockets import ask_socket

            async with aclosing(ask_socket(self._address, self._tls, replace(request, headers=headers), body)) as parts:
                async for part in parts:
                    yield part
            return
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.make),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=(hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE),
            )
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._address}{request.path}", encoded=True),
                headers=headers,
                data=body if request.has_body else None,
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


class ServerApi:
    """The API of this agent for a server of this or another region."""

    def __init__(self, api: ApiPort, through: Through, name: str) -> None:
        """`name` is the server's."""
        self._api = api
        self._through = through
        self._name = name

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        """Put the request to the agent's own HTTP address, as one that the server passed on."""
        origin = through_server(request.origin, self._through, self._name)
        async with aclosing(self._api.ask(replace(request, origin=origin), body)) as parts:
            async for part in parts:
                yield part


class NodeApi:
    """The API of this agent for the agent of one node: as far as `yurt.http.node_routes` allows.

    Whether the node may ask at all was decided where the call came in (`yurt.rpc.serving`).
    """

    def __init__(self, api: ApiPort, node_id: str) -> None:
        self._api = api
        self._node_id = node_id

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        """Send the request to the agent's own HTTP address, marked as coming over a node's connection."""
        headers = {name: text for name, text in request.headers.items() if not name.lower().startswith(OWN_HEADERS)}
        origin = through_node(request.origin, self._node_id)
        marked = replace(request, headers=headers | {FROM_NODE: "true"}, origin=origin)
        async with aclosing(self._api.ask(marked, body)) as parts:
            async for part in parts:
                yield part


async def forward(request: web.Request, api: ApiPort, *, by: str = BY_CLIENT, region: str = "") -> web.StreamResponse:
    """Answer as another agent does; raises Unavailable when it is unreachable or the request came too far.

    A `region` that is given replaces the one that the request names.
    """
    _check_encodable(request)
    if by != BY_REGION and request.headers.get(FORWARDED) in (by, BY_SERVER):
        raise NotLed(NO_SERVERS, reason=Reason.UNAVAILABLE) if by == BY_CLIENT else NotLed(NO_LEADER)
    headers = _passed(dict(request.headers)) | {FORWARDED: by}
    if session := session_text(request):
        headers["X-Nomad-Token"] = session
    if request.secure:
        headers[hdrs.X_FORWARDED_PROTO] = "https"
    if by == BY_REGION:
        headers[FROM_REGION] = SECOND_HOP if FROM_REGION in request.headers else FIRST_HOP
    asked = ApiRequest(
        method=request.method,
        path=_for_region(request.raw_path, region) if region else request.raw_path,
        headers=headers,
        has_body=request.body_exists,
        origin=origin_of(request),
    )
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        from yurt.http.forwarding.forwarded_sockets import forward_socket

        return await forward_socket(request, api, asked, request.app[CONTEXT].env)
    response: web.StreamResponse | None = None
    followed = request.app[CONTEXT].followed
    async with aclosing(api.ask(asked, _body(request))) as parts:
        async for part in parts:
            if response is None:
                response = await _begin(request, part)
            else:
                followed.note_piece(response, part.data)
                await response.write(part.data)
    if response is None:
        raise Unavailable("the server ended its answer before it began")
    await response.write_eof()
    return response


def _check_encodable(request: web.Request) -> None:
    """Raises Refused for bytes in the head of a request that are not UTF-8: frames between agents hold text."""
    if not is_encodable(request.raw_path):
        raise Refused(400, "The path is not UTF-8: percent-encode its bytes")
    wrong = next((name for name, value in request.headers.items() if not is_encodable(value)), "")
    if wrong:
        raise Refused(400, f"The header {wrong[:128]} is not UTF-8")


async def _begin(request: web.Request, first: ApiPart) -> web.StreamResponse:
    if any(name.lower() == NOT_LEADING.lower() for name in first.headers):
        raise NotLed(NO_LEADER)
    response = web.StreamResponse(status=first.status, headers=first.headers)
    await response.prepare(request)
    return response


def _for_region(path: str, region: str) -> str:
    """The path with a region that its query names replaced; else the far end would pass the request on to that one."""
    plain, mark, query = path.partition("?")
    parts = query.split("&")
    named = [f"region={quote(region, safe='')}" if part.partition("=")[0] == "region" else part for part in parts]
    return f"{plain}{mark}{'&'.join(named)}"


def is_kept(request: web.Request) -> bool:
    """Whether the body is kept while it is forwarded, so that the request can be sent again."""
    return not request.body_exists or (request.content_length is not None and request.content_length <= KEPT_BYTES)


async def _body(request: web.Request) -> AsyncGenerator[bytes]:
    """The body in pieces; a small one is kept, so that it can be sent again."""
    # A handler that finds out that another region decides has read the body: then it is kept as well.
    if is_kept(request) or request.content.at_eof():
        whole = await request.read()
        for start in range(0, len(whole), PIECE_BYTES):
            yield whole[start : start + PIECE_BYTES]
        return
    async for piece in request.content.iter_chunked(PIECE_BYTES):
        yield piece


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    """The forwarded headers; those about the page in a browser were checked where the request arrived."""
    return {
        name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED and not is_of_browser(name)
    }
