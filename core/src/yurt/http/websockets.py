"""Shared parts of websockets: their opening, their refusal, and the detection of peers that vanished.

As in Nomad a refusal comes after the upgrade, because browsers show their pages nothing of a plain answer: the socket
opens and closes at once, with code 1011 for what would be the status 500, with 1008 for any other, and the text as the
reason. For our command line the head of the upgrade names the reason's code, too. Only the agent that the caller
reached does so; an agent that passes the request on gets the plain answer, and so does a caller that asks for no
upgrade, or whose page is foreign. A close frame has room for 123 bytes: a longer text comes before it as a whole, in a
frame of standard error, which all callers show.

A browser cannot set headers either. With `ws_handshake=true` and no token in a header, the first message names the
token: `{"version": 1, "auth_token": "..."}`. It is read before anything else, and the request goes on with the token in
its header and without the parameter, so that what decides about it, here or elsewhere, finds it where it always is.
What an unknown caller may send, and in which time, is bounded (`yurt.http.edge.first_message`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import WSCloseCode, web
from multidict import CIMultiDict

from yurt.api.encode import encode_builtins
from yurt.api.websocket import CLOSE, BrokenFrame
from yurt.http.authentication import TOKEN_HEADER, secret_text
from yurt.http.call import BEGUN
from yurt.http.edge.first_message import FirstMessageSocket
from yurt.http.errors import Refused
from yurt.http.forwarding_headers import ORIGIN
from yurt.http.query import flag
from yurt.runtime.env import Env
from yurt.sdk.errors import ERROR_HEADER, NO_ERROR, YurtError, reason_of_status

FRAME_BYTES_MAX = 4 * 1024 * 1024
CLOSE_LIMIT_S = 2.0
LOOK_S = 1.0
LOOKS_A_PING = 4
"""A ping is sent every fourth check; it fails when the peer has vanished."""
TCP_ESTABLISHED = 1
REASON_BYTES_MAX = 123
"""What a close frame holds besides its code."""
TEXT_CHARS_MAX = 16 * 1024
"""Characters of a refusal in a frame."""
CUT = "..."
FAILED_STATUS = 500
"""The only status that closes with 1011."""
HANDSHAKE = "ws_handshake"
HANDSHAKE_VERSION = 1
HANDSHAKE_LIMIT_S = 10.0
"""Until the whole first message has come, whatever comes before it."""

OPENED: web.RequestKey[web.WebSocketResponse] = web.RequestKey("yurt_opened", web.WebSocketResponse)
"""The websocket of a request that was opened before its caller was known."""


class TokenMessage(msgspec.Struct):
    """The first message of a caller that cannot set headers."""

    version: int = 0
    auth_token: str = ""


async def answer_over_socket(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Let the handler answer; its refusal closes the websocket, which opens for that if it has not."""
    if _peer_of(request) is None or ORIGIN in request.headers:  # another agent passes the plain answer on
        return await handler(request)
    asked, opened = request, None
    if _names_token_first(request):
        opened = _unknown_peer()
        await opened.prepare(request)
        try:
            asked = _with_token(request, await _handshake(opened))
        except Refused as error:
            return await _refused(request, opened, web.Response(status=error.status, text=str(error)))
        asked[OPENED] = opened
    answer = await handler(asked)
    if isinstance(answer, web.Response) and answer.status >= NO_ERROR and not answer.prepared:
        return await _refused(request, opened or _unknown_peer(), answer)
    return answer


def socket_of(request: web.Request) -> web.WebSocketResponse:
    """The websocket of a request, for `open_socket`; raises Refused for a request that asks for none."""
    if OPENED in request:
        return request[OPENED]
    peer = _peer_of(request)
    if peer is None:
        raise Refused(400, "this route speaks websocket: ask for an upgrade")
    return peer


async def open_socket(request: web.Request, peer: web.WebSocketResponse) -> None:
    """Begin the answer: from now on the request is refused no more, and never carried out again."""
    if peer.prepared:
        BEGUN.get().append(peer)
        if isinstance(peer, FirstMessageSocket):
            peer.admit()
    else:
        await peer.prepare(request)


def _peer_of(request: web.Request) -> web.WebSocketResponse | None:
    """A websocket that can open for the request; None where its headers ask for none, or for an impossible one."""
    peer = web.WebSocketResponse(max_msg_size=FRAME_BYTES_MAX, compress=False, timeout=CLOSE_LIMIT_S)
    try:
        return peer if peer.can_prepare(request).ok else None
    except ValueError:  # a key that is not base64
        return None


def _names_token_first(request: web.Request) -> bool:
    """Whether the first message names the token; a malformed parameter is refused where all others are."""
    if request.headers.get(TOKEN_HEADER, "").strip() or secret_text(request):
        return False
    try:
        return flag(request.query, HANDSHAKE)
    except Refused:
        return False


def _unknown_peer() -> FirstMessageSocket:
    """A websocket for a caller that is not known yet, or that is refused."""
    return FirstMessageSocket(max_msg_size=FRAME_BYTES_MAX, compress=False, timeout=CLOSE_LIMIT_S)


async def _handshake(peer: FirstMessageSocket) -> TokenMessage:
    """The first message; raises Refused for another one, for one that is too long, and for none in time."""
    try:
        async with asyncio.timeout(HANDSHAKE_LIMIT_S):
            message = await peer.first_message()
    except TimeoutError:
        raise Refused(400, f"no handshake came within {HANDSHAKE_LIMIT_S:.0f} s") from None
    except BrokenFrame as error:
        raise Refused(400, f"no handshake: {error}") from None
    if message.kind == CLOSE:
        raise Refused(400, "the websocket was closed before the handshake")
    try:
        found = msgspec.json.decode(message.data, type=TokenMessage)
    except msgspec.DecodeError as error:
        raise Refused(400, f"no handshake: {error}") from None
    if found.version != HANDSHAKE_VERSION:
        raise Refused(400, f"handshake of version {found.version}: it is {HANDSHAKE_VERSION}")
    return found


def _with_token(request: web.Request, shown: TokenMessage) -> web.Request:
    """The request as a caller sends it that can set headers."""
    headers = CIMultiDict(request.headers)
    if token := shown.auth_token.strip():
        headers[TOKEN_HEADER] = token
    return request.clone(headers=headers, rel_url=request.rel_url.without_query_params(HANDSHAKE))


async def _refused(request: web.Request, peer: FirstMessageSocket, answer: web.Response) -> web.StreamResponse:
    """Close the websocket with what the answer says; the answer itself where its reader has left."""
    if request.transport is None or request.transport.is_closing():
        return answer
    text = bytes(answer.body).decode(errors="replace") if isinstance(answer.body, bytes | bytearray) else ""
    with contextlib.suppress(ConnectionError):
        if not peer.prepared:
            peer.headers[ERROR_HEADER] = answer.headers.get(ERROR_HEADER) or reason_of_status(answer.status)
            await peer.prepare(request)
        peer.refuse()
        await close_with(peer, _code_of_status(answer.status), text)
    return peer


async def watch_peer(env: Env, request: web.Request, peer: web.WebSocketResponse) -> None:
    """End when the peer has disconnected, even while the command takes no input and the peer is not read."""
    looks = 0
    while request.transport is not None and not request.transport.is_closing() and not has_left(request):
        await env.sleep(LOOK_S)
        looks += 1
        if looks % LOOKS_A_PING == 0:
            with contextlib.suppress(ConnectionError):
                await peer.ping()


def has_left(request: web.Request) -> bool:
    """Whether the peer has closed its side, which otherwise only a reader notices; Linux and TCP only."""
    connection = request.transport.get_extra_info("socket") if request.transport is not None else None
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return False
    return state != TCP_ESTABLISHED


def close_code(error: YurtError) -> int:
    """The close code of a failure after the peer has opened."""
    return _code_of_status(error.status)


def _code_of_status(status: int) -> int:
    return int(WSCloseCode.INTERNAL_ERROR if status == FAILED_STATUS else WSCloseCode.POLICY_VIOLATION)


async def close_with(peer: web.WebSocketResponse, code: int, text: str) -> None:
    """Close with a text for the caller; one too long for the close frame comes as a whole before it."""
    if len(text.encode(errors="replace")) > REASON_BYTES_MAX:
        data = base64.b64encode((text[:TEXT_CHARS_MAX] + "\n").encode(errors="replace")).decode()
        await peer.send_str(encode_builtins({"stderr": {"data": data}}).decode())
    await peer.close(code=code, message=shortened(text))


def shortened(text: str) -> bytes:
    """A reason that fits into a close frame: the text, or its first words."""
    data = text.encode(errors="replace")
    if len(data) <= REASON_BYTES_MAX:
        return data
    fitting = data[: REASON_BYTES_MAX - len(CUT)].decode(errors="ignore")
    words = fitting.rpartition(" ")[0].rstrip(" ,;:") or fitting
    return (words + CUT).encode()
