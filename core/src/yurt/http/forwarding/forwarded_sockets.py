"""Websockets answered by another agent: a command in a task, requested from an agent without a server.

The far end opens a websocket to its own HTTP API and passes the bytes of its frames on, in both directions, inside a
forwarded request: those to the API as the request's body, those from it as the parts of the answer. Here messages are
made of them for the one who asked. A refusal is a plain answer, exactly as the API gave it; the agent that the caller
reached closes the websocket with it (`yurt.http.websockets`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple

from aiohttp import WSCloseCode, WSMsgType, web
from yarl import URL

from yurt.api.websocket import (
    BINARY,
    CLOSE,
    NORMAL,
    TEXT,
    BrokenFrame,
    Message,
    WebSocketFrames,
    accept_of,
    encode,
    new_key,
)
from yurt.http.api_port import PIECE_BYTES, ApiPart, ApiPort, ApiRequest
from yurt.http.websockets import close_code, close_with, open_socket, socket_of, watch_peer
from yurt.runtime.env import Env
from yurt.sdk.errors import ERROR_HEADER, Invalid, Unavailable, YurtError
from yurt.sdk.value import replace

SWITCHED = 101
HEAD_BYTES_MAX = 64 * 1024
REFUSAL_BYTES_MAX = 1024 * 1024
OPEN_LIMIT_S = 30.0
NO_MASK = b"\0\0\0\0"
"""Masks guard proxies that cache; here an agent speaks to itself."""
KEPT = ("content-type", ERROR_HEADER.lower())
"""Headers of a refusal that go back to the caller."""
KINDS = {WSMsgType.TEXT: TEXT, WSMsgType.BINARY: BINARY}


class ResponseHead(NamedTuple):
    """Status and headers of an answer, by their names in lower case."""

    status: int
    headers: dict[str, str]


# The end that was asked.


async def forward_socket(request: web.Request, api: ApiPort, asked: ApiRequest, env: Env) -> web.StreamResponse:
    """Let another agent's API answer a websocket; raises Unavailable when it cannot be reached."""
    peer = socket_of(request)
    headers = {name: value for name, value in asked.headers.items() if not _is_of_handshake(name)}
    is_opened = asyncio.Event()
    asked = replace(asked, headers=headers, is_socket=True, has_body=True)
    async with contextlib.aclosing(api.ask(asked, _frames_of(peer, is_opened))) as parts:
        first = await anext(parts, None)
        if first is None:
            raise Unavailable("the server ended its answer before it began")
        if first.status != SWITCHED:
            return web.Response(
                status=first.status, headers=first.headers, body=b"".join([part.data async for part in parts])
            )
        await open_socket(request, peer)
        is_opened.set()
        await _converse(request, peer, parts, env)
    return peer


async def _converse(request: web.Request, peer: web.WebSocketResponse, parts: AsyncIterator[ApiPart], env: Env) -> None:
    """Forward messages in both directions until one side closes."""
    async with asyncio.TaskGroup() as group:
        work = [
            group.create_task(_send_messages(parts, peer), name="messages of a forwarded websocket"),
            group.create_task(watch_peer(env, request, peer), name="peer of a forwarded websocket"),
        ]
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            task.cancel()


async def _frames_of(peer: web.WebSocketResponse, is_opened: asyncio.Event) -> AsyncGenerator[bytes]:
    """The caller's messages as frames, until it closes or disconnects."""
    await is_opened.wait()
    async for message in peer:
        if message.type not in KINDS:
            break
        data = message.data.encode() if isinstance(message.data, str) else message.data
        frame = encode(KINDS[message.type], data, mask=NO_MASK)
        for start in range(0, len(frame), PIECE_BYTES):
            yield frame[start : start + PIECE_BYTES]
    yield encode(CLOSE, (peer.close_code or NORMAL).to_bytes(2, "big"), mask=NO_MASK)


async def _send_messages(parts: AsyncIterator[ApiPart], peer: web.WebSocketResponse) -> None:
    """Send what the other agent's API gives, and close as soon as it does: it waits for the answer to its close."""
    code, reason = int(WSCloseCode.INTERNAL_ERROR), "the connection to the server has ended"
    try:
        async for message in _messages(parts):
            if message.kind == CLOSE:
                code = int.from_bytes(message.data[:2], "big") or NORMAL
                reason = message.data[2:].decode(errors="replace")
                break
            if message.kind == TEXT:
                await peer.send_str(message.data.decode(errors="replace"))
            elif message.kind == BINARY:
                await peer.send_bytes(message.data)
    except BrokenFrame as error:
        reason = str(error)
    except YurtError as error:
        code, reason = close_code(error), str(error)
    except ConnectionError:
        return
    with contextlib.suppress(ConnectionError):
        await close_with(peer, code, reason)


async def _messages(parts: AsyncIterator[ApiPart]) -> AsyncIterator[Message]:
    """Complete messages from pieces of frames."""
    frames = WebSocketFrames()
    async for part in parts:
        for message in frames.feed(part.data):
            yield message


def _is_of_handshake(name: str) -> bool:
    """Whether a header belongs to the handshake, which each hop makes itself. Neither is a refusal compressed."""
    return name.lower().startswith("sec-websocket-") or name.lower() == "accept-encoding"


# The end that answers.


async def ask_socket(
    address: str, tls: ssl.SSLContext | None, request: ApiRequest, body: AsyncIterator[bytes]
) -> AsyncGenerator[ApiPart]:
    """Open a websocket to this agent's own API: its status, then the bytes of its frames, or of the refusal."""
    url = URL(address)
    try:
        async with asyncio.timeout(OPEN_LIMIT_S):
            reader, writer = await asyncio.open_connection(
                url.host, url.port, ssl=(tls or True) if url.scheme == "https" else None
            )
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"the server's own API does not answer: {str(error) or 'not in time'}") from None
    sending: asyncio.Future[None] | None = None
    try:
        key = new_key()
        writer.write(handshake(url, request.path, request.headers, key=key))
        head = await read_head(reader)
        if head.status != SWITCHED:
            yield ApiPart(status=head.status, headers=_kept(head.headers))
            size = head.headers.get("content-length", "")
            yield ApiPart(data=await reader.read(min(int(size), REFUSAL_BYTES_MAX)) if size.isdigit() else b"")
            return
        if head.headers.get("sec-websocket-accept") != accept_of(key):
            raise Unavailable("the server's own API does not speak websocket")
        yield ApiPart(status=SWITCHED)
        sending = asyncio.ensure_future(_send_bytes(body, writer))  # noqa: TID251 - ended below
        while data := await reader.read(PIECE_BYTES):
            yield ApiPart(data=data)
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        raise Unavailable(f"the server's own API ended the connection: {error}") from None
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.wait([sending])
        writer.close()


async def _send_bytes(body: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    """Forward the caller's bytes at the reader's speed."""
    with contextlib.suppress(ConnectionError, YurtError):
        async for piece in body:
            writer.write(piece)
            await writer.drain()


def handshake(url: URL, path: str, headers: Mapping[str, str], *, key: str) -> bytes:
    """The request for a websocket; raises Invalid for a path or header that would be more than one."""
    given = {name: value for name, value in headers.items() if not _is_of_handshake(name)}
    own = {
        "Host": url.authority, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
    }  # fmt: skip
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**given, **own}.items())]
    if not path.isprintable() or " " in path or any("\r" in line or "\n" in line for line in lines):
        raise Invalid("a path or header of the forwarded request holds a line break or a blank")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def read_head(reader: asyncio.StreamReader) -> ResponseHead:
    """The head of an answer; raises EOFError or LimitOverrunError for an invalid one."""
    async with asyncio.timeout(OPEN_LIMIT_S):
        text = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
    first, *fields = text.rstrip().split("\r\n")
    words = first.split()
    if len(words) < 2 or not words[1].isdigit():
        raise EOFError("it answered with something else than HTTP")
    named = (field.partition(":") for field in fields)
    return ResponseHead(int(words[1]), {name.strip().lower(): value.strip() for name, _, value in named})


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Of a refusal's headers: its type, and the reason by which callers decide."""
    return {name: value for name, value in headers.items() if name in KEPT}
