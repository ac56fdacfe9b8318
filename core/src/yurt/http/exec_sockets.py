"""A websocket between a user's terminal and a command inside a task.

Frames are JSON texts, bytes in base64. To the command: `{"stdin": {"data", "close"}}`, `{"tty_size": {"height",
"width"}}`, and `{}` as a sign of life. From it: `{"stdout": {"data", "close"}}`, `{"stderr": ...}`, and last
`{"exited": true, "result": {"exit_code"}}`, after which the socket closes with code 1000. A refusal closes it at once
(`yurt.http.websockets`). When the caller's rights end while it is open, the command ends, and the socket closes with
code 1008 and the reason.

A command in a task that its driver does not isolate from the node needs `alloc-node-exec` besides what the route needs.
The node knows the driver: it refuses the command unless the request says that the caller may, and its first frame says
that the right was used.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from yurt.access import Capability, Scope, needs
from yurt.api.encode import encode_builtins
from yurt.http.call import Call
from yurt.http.leases import Lease
from yurt.http.query import flag
from yurt.http.websockets import (
    HANDSHAKE_LIMIT_S,
    close_code,
    close_with,
    open_socket,
    socket_of,
    watch_peer,
)
from yurt.sdk.errors import YurtError
from yurt.sdk.exec import TerminalSize
from yurt.sdk.value import replace
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest

if TYPE_CHECKING:
    from yurt.server.ports import NodePort

ALLOC_NODE_EXEC = needs.namespace(Capability.ALLOC_NODE_EXEC)


class InputPart(msgspec.Struct):
    """Bytes for the command's input, or its end."""

    data: bytes = b""
    close: bool = False


class InputSize(msgspec.Struct):
    """The size of the caller's terminal."""

    height: int = 0
    width: int = 0


class InputFrame(msgspec.Struct):
    """A message from the caller."""

    stdin: InputPart | None = None
    tty_size: InputSize | None = None


async def converse(call: Call, node: NodePort, request: ExecRequest, scope: Scope) -> web.StreamResponse:
    """Open the websocket once the command runs, and pass on what either side sends; `scope` is the allocation's."""
    peer = socket_of(call.request)
    is_opened = asyncio.Event()
    inputs = read_inputs(peer, is_opened, has_handshake=flag(call.query, "ws_handshake"))
    request = replace(request, is_node_exec_allowed=call.access.narrowed(ALLOC_NODE_EXEC).allows(scope))
    async with contextlib.aclosing(node.exec_task(request, inputs)) as frames:
        if (await anext(frames)).is_node_exec:
            call.lease.also_needs(scope, ALLOC_NODE_EXEC)
        await open_socket(call.request, peer)
        is_opened.set()
        async with asyncio.TaskGroup() as group:
            work = [
                group.create_task(send_frames(frames, peer), name="frames of exec"),
                group.create_task(watch_peer(call.context.env, call.request, peer), name="peer of exec"),
                group.create_task(close_without_rights(call.lease, peer), name="rights of exec"),
            ]
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                task.cancel()
    return peer


async def close_without_rights(lease: Lease, peer: web.WebSocketResponse) -> None:
    """Wait until the caller's rights end, and close the socket with the reason."""
    try:
        await lease.lost()
    except YurtError as error:
        with contextlib.suppress(ConnectionError):
            await close_with(peer, close_code(error), str(error))


async def read_inputs(
    peer: web.WebSocketResponse, is_opened: asyncio.Event, *, has_handshake: bool
) -> AsyncIterator[ExecInput]:
    """The caller's messages, until it disconnects or sends an invalid one."""
    await is_opened.wait()
    if has_handshake:
        with contextlib.suppress(TimeoutError):
            await peer.receive(HANDSHAKE_LIMIT_S)
    async for message in peer:
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return
        try:
            frame = msgspec.json.decode(message.data, type=InputFrame)
        except msgspec.DecodeError as error:
            await close_with(peer, WSCloseCode.INVALID_TEXT, f"no frame of exec: {error}")
            return
        yield input_of(frame)


def input_of(frame: InputFrame) -> ExecInput:
    """A frame in our terms."""
    part, size = frame.stdin or InputPart(), frame.tty_size
    return ExecInput(
        data=part.data,
        is_last=part.close,
        size=TerminalSize(width=size.width, height=size.height) if size else None,
    )


async def send_frames(frames: AsyncIterator[ExecFrame], peer: web.WebSocketResponse) -> None:
    """Send the command's output at the reader's speed, and close."""
    code, reason = int(WSCloseCode.OK), ""
    try:
        async for frame in frames:
            await peer.send_str(frame_text(frame))
    except YurtError as error:
        code, reason = close_code(error), str(error)
    except ConnectionError:
        return
    with contextlib.suppress(ConnectionError):
        await close_with(peer, code, reason)


def frame_text(frame: ExecFrame) -> str:
    """A frame as JSON."""
    if frame.exit_code is not None:
        return encode_builtins({"exited": True, "result": {"exit_code": frame.exit_code}}).decode()
    part: dict[str, Any] = {}
    if frame.data:
        part["data"] = base64.b64encode(frame.data).decode()
    if frame.is_last:
        part["close"] = True
    return encode_builtins({frame.stream: part} if frame.stream else {}).decode()
