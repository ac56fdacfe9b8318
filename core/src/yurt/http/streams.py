"""Streams: answers that grow. The first piece is fetched before the answer begins, so that an early error has its
own status.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from yurt.api.encode import encode_builtins
from yurt.http.call import Call
from yurt.http.edge.followed import FOLLOWED, FRAMES, PLAIN
from yurt.http.edge.security_headers import TEXT
from yurt.structs.rpc import StreamFrame


async def send_bytes(
    call: Call, chunks: AsyncIterator[bytes], *, content_type: str, followed: str = ""
) -> web.StreamResponse:
    """Raw bytes; `followed` is the form of a followed stream."""
    first = await anext(chunks, b"")
    headers = {"Content-Type": content_type}
    response = web.StreamResponse(headers=headers | {FOLLOWED: followed} if followed else headers)
    await response.prepare(call.request)
    if first:
        await response.write(first)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


async def send_frames(call: Call, frames: AsyncIterator[StreamFrame], *, follow: bool) -> web.StreamResponse:
    """Frames as one JSON object per line, an empty frame as a heartbeat. Sent as text: it is not one JSON document."""
    return await send_bytes(call, _lines(frames), content_type=TEXT, followed=FRAMES if follow else "")


async def send_frame_data(call: Call, frames: AsyncIterator[StreamFrame], *, follow: bool) -> web.StreamResponse:
    """The data of frames as plain text."""
    return await send_bytes(call, _data(frames), content_type=TEXT, followed=PLAIN if follow else "")


def frame_line(frame: StreamFrame) -> bytes:
    """One frame without its empty fields. `Offset` is the end of its data, where reading continues."""
    wire: dict[str, Any] = {}
    if frame.data:
        wire["Data"] = base64.b64encode(frame.data).decode()
    if frame.file:
        wire["File"] = frame.file
    if frame.file_event:
        wire["FileEvent"] = frame.file_event
    if frame.offset or frame.data:
        wire["Offset"] = frame.offset + len(frame.data)
    return encode_builtins(wire) + b"\n"


async def _lines(frames: AsyncIterator[StreamFrame]) -> AsyncIterator[bytes]:
    async for frame in frames:
        yield frame_line(frame)


async def _data(frames: AsyncIterator[StreamFrame]) -> AsyncIterator[bytes]:
    async for frame in frames:
        if frame.data:
            yield frame.data
