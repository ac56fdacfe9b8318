"""Files and logs of allocations, read on the node that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.http.edge.security_headers import inert_type
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import node_of_alloc
from yurt.http.query import flag, number
from yurt.http.streams import send_bytes, send_frame_data, send_frames
from yurt.sdk.errors import NotFound, Reason

if TYPE_CHECKING:
    from yurt.server.ports import NodePort


async def list_files(call: Call) -> web.Response:
    """GET /v1/client/fs/ls/:alloc."""
    alloc_id, node = _target(call)
    return json_answer(call, list(await node.list_files(alloc_id, call.query.get("path") or "/")))


async def stat(call: Call) -> web.Response:
    """GET /v1/client/fs/stat/:alloc."""
    alloc_id, node = _target(call)
    return json_answer(call, await node.stat_file(alloc_id, _path(call)))


async def cat(call: Call) -> web.StreamResponse:
    """GET /v1/client/fs/cat/:alloc."""
    alloc_id, node = _target(call)
    return await _send_file(call, alloc_id, node, offset=0, limit=0)


async def read_at(call: Call) -> web.StreamResponse:
    """GET /v1/client/fs/readat/:alloc."""
    alloc_id, node = _target(call)
    _path(call)
    offset = number(call.query, "offset")
    if offset is None:
        raise Refused(400, "error parsing offset: it must be given as a number")
    limit = number(call.query, "limit") or 0
    if offset < 0 or limit < 0:
        raise Refused(400, "offset and limit must not be negative")
    return await _send_file(call, alloc_id, node, offset=offset, limit=limit)


async def _send_file(call: Call, alloc_id: str, node: NodePort, *, offset: int, limit: int) -> web.StreamResponse:
    path = _path(call)
    info = await node.stat_file(alloc_id, path)
    if info.is_dir:
        raise Refused(400, f'file "{path[:256]}" is a directory')
    kind = inert_type(info.content_type)
    return await send_bytes(call, node.read_file(alloc_id, path, offset=offset, limit=limit), content_type=kind)


async def stream(call: Call) -> web.StreamResponse:
    """GET /v1/client/fs/stream/:alloc."""
    alloc_id, node = _target(call)
    path, origin, offset = _path(call), _origin(call), _offset(call)
    follow = flag(call.query, "follow", default=True)
    try:
        await node.stat_file(alloc_id, path)
    except NotFound as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        raise Refused(400, str(error)) from None  # Clients expect 404 of an unknown allocation only.
    frames = node.stream_file(alloc_id, path, offset=offset, origin=origin, follow=follow)
    return await send_frames(call, frames, follow=follow)


async def logs(call: Call) -> web.StreamResponse:
    """GET /v1/client/fs/logs/:alloc."""
    alloc_id, node = _target(call)
    task, kind = call.query.get("task", ""), call.query.get("type", "")
    if not task:
        raise Refused(400, "must provide task name")
    if kind not in ("stdout", "stderr"):
        raise Refused(400, "must provide log type (stdout/stderr)")
    follow, plain = flag(call.query, "follow"), flag(call.query, "plain")
    frames = node.stream_logs(alloc_id, task, kind=kind, offset=_offset(call), origin=_origin(call), follow=follow)
    return await (send_frame_data if plain else send_frames)(call, frames, follow=follow)


async def unknown(call: Call) -> web.Response:
    """Anything else below /v1/client/fs."""
    raise Refused(404, "Invalid method")


def _target(call: Call) -> tuple[str, NodePort]:
    alloc_id = call.request.match_info.get("id", "")
    if not alloc_id:
        raise Refused(400, "must provide a valid alloc id")
    return node_of_alloc(call, alloc_id)


def _path(call: Call) -> str:
    path: str = call.query.get("path", "")
    if not path:
        raise Refused(400, "must provide a file name")
    return path


def _origin(call: Call) -> str:
    origin: str = call.query.get("origin") or "start"
    if origin not in ("start", "end"):
        raise Refused(400, "origin must be start or end")
    return origin


def _offset(call: Call) -> int:
    offset = number(call.query, "offset") or 0
    if offset < 0:
        raise Refused(400, "offset must not be negative")
    return offset
