"""Snapshots of the whole state, to keep and to restore."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tempfile
from typing import IO, Final

from aiohttp import web

from yurt.http.call import Call, empty_answer
from yurt.http.errors import Refused
from yurt.http.routing import route
from yurt.server.restore import restore
from yurt.state.store import Snapshot
from yurt.storage.archive import read_archive, write_archive

ARCHIVE_BYTES_MAX: Final = 1024**3
PIECE_BYTES: Final = 256 * 1024


async def save(call: Call) -> web.StreamResponse:
    """GET /v1/operator/snapshot: a gzipped tar; the Digest header tells its SHA-256."""
    state = call.read_state()
    with tempfile.TemporaryFile() as file:
        digest, size = await asyncio.to_thread(_written, state, file, call.agent.version)
        headers = {
            "Content-Type": "application/x-gzip",
            "Content-Length": str(size),
            "Digest": f"sha-256={base64.b64encode(digest).decode()}",
            "X-Nomad-Index": str(state.index),
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(call.request)
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            await response.write(piece)
        return response


def _written(state: Snapshot, out: IO[bytes], version: str) -> tuple[bytes, int]:
    """Write the archive into an empty file; its digest and size."""
    write_archive(state, out, version=version)
    size = out.tell()
    out.seek(0)
    digest = hashlib.sha256()
    while piece := out.read(PIECE_BYTES):
        digest.update(piece)
    out.seek(0)
    return digest.digest(), size


async def load(call: Call) -> web.Response:
    """PUT /v1/operator/snapshot: the state becomes what the archive holds, and what runs follows it."""
    call.read_state()
    with tempfile.TemporaryFile() as file:
        size = 0
        async for piece in call.request.content.iter_chunked(PIECE_BYTES):
            size += len(piece)
            if size > ARCHIVE_BYTES_MAX:
                raise Refused(413, f"the snapshot is too large: the limit is {ARCHIVE_BYTES_MAX} bytes")
            await asyncio.to_thread(file.write, piece)
        if not size:
            raise Refused(400, "Request body is empty: a snapshot is expected")
        file.seek(0)
        archive = await asyncio.to_thread(read_archive, file)
    return empty_answer(index=await restore(call.server, archive.data))


ROUTES = (route("/v1/operator/snapshot", get=save, write=load),)
