"""Snapshots of the whole state, to keep and to restore."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from typing import IO, Final

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.errors import Refused
from yurt.storage.archive import ARCHIVE_BYTES_MAX
from yurt.storage.archive_check import check_archive

PIECE_BYTES: Final = 256 * 1024


async def save(call: Call) -> web.StreamResponse:
    """GET /v1/operator/snapshot: a gzipped tar; the Digest header has its SHA-256."""
    call.need_state()
    with _scratch(call) as file:
        saved = await call.operations.snapshots.save(file, version=call.agent.version)
        headers = {
            "Content-Type": "application/x-gzip",
            "Content-Length": str(saved.size),
            "Digest": f"sha-256={base64.b64encode(saved.sha256).decode()}",
            "X-Nomad-Index": str(saved.index),
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(call.request)
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            await response.write(piece)
        return response


async def load(call: Call) -> web.Response:
    """PUT /v1/operator/snapshot: the archive's content becomes the state, and running allocations follow it.

    The archive goes to a disk, and from there through a process with bounds (`storage.archive_check`): no part of it is
    in the memory of this one before all of it has been checked. One restore at a time, its upload included. Where the
    restore changed access control, the answer names what became valid.
    """
    call.need_state()
    restores = call.context.restores
    if restores.locked():
        raise Refused(409, "another snapshot is being restored: try again when that has ended")
    async with restores:
        with _scratch(call) as archive, _scratch(call) as state:
            await _receive(call, archive)
            checked = await check_archive(archive, state)
            restored = await call.operations.snapshots.restore(state, checked.size)
    if not restored.access.count:
        return empty_answer(index=restored.index)
    return json_answer(call, {"RestoredAccess": to_wire(restored.access)}, index=restored.index)


async def _receive(call: Call, archive: IO[bytes]) -> None:
    """Write the request's body to a file."""
    size = 0
    async for piece in call.request.content.iter_chunked(PIECE_BYTES):
        size += len(piece)
        if size > ARCHIVE_BYTES_MAX:
            raise Refused(413, f"the snapshot is too large: the limit is {ARCHIVE_BYTES_MAX} bytes")
        await asyncio.to_thread(archive.write, piece)
    if not size:
        raise Refused(400, "Request body is empty: a snapshot is expected")
    archive.flush()
    archive.seek(0)


def _scratch(call: Call) -> IO[bytes]:
    """A file without a name, on the disk of the server's data: the system's folder for such files may be memory."""
    return tempfile.TemporaryFile(dir=call.settings.data_dir or None)
