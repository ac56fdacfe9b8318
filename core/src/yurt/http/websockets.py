"""Shared parts of websockets: limits, closing, and the detection of peers that vanished."""

from __future__ import annotations

import contextlib
import socket

from aiohttp import WSCloseCode, web

from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError

FRAME_BYTES_MAX = 4 * 1024 * 1024
CLOSE_LIMIT_S = 2.0
LOOK_S = 1.0
LOOKS_A_PING = 4
"""A ping is sent every fourth check; it fails when the peer has vanished."""
TCP_ESTABLISHED = 1
CODE_BASE = 4000
"""Close codes of an application: 4000 and the HTTP status that a plain answer would have."""
REASON_BYTES_MAX = 120


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
    return int(WSCloseCode.INTERNAL_ERROR) if error.status == 500 else CODE_BASE + error.status


def shortened(text: str) -> bytes:
    """A reason that fits into a close frame."""
    return text.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
