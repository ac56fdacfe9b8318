"""Transfers a state from another server to one that is behind the first retained log entry.

The other one sends its present state in chunks with a digest. It is laid down as a snapshot of this server before it
is used: after a restart the server goes on from there. A server that gets none waits and asks again; it never starts
empty where the log begins later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import IO, Final

from yurt.fsm import snapshot as snapshots
from yurt.sdk.errors import Invalid, Unavailable, YurtError
from yurt.server.peers import Peers, SnapshotPart
from yurt.state import Snapshot
from yurt.storage.log import CommandLog

log = logging.getLogger(__name__)

DIGEST_BYTES: Final = 32
PIECE_BYTES: Final = 256 * 1024
"""The maximum size of a piece, since a chunk with large jobs may exceed a message."""
IN_MEMORY_BYTES: Final = 8 * 1024 * 1024
"""The size up to which a snapshot is received in memory; larger ones go to a file."""
PART_LIMIT_S: Final = 30.0
"""The time limit of a part, in seconds, after which another server is tried."""
_length = struct.Struct("<I")


async def send_snapshot(state: Snapshot, after: int) -> AsyncGenerator[SnapshotPart]:
    """A state in parts; raises Unavailable when it is not beyond `after`."""
    if state.index <= after:
        raise Unavailable(f"this server is at index {state.index} itself")
    yield SnapshotPart(index=state.index)
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    chunks = iter(snapshots.encode(state))
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        hasher.update(chunk)
        for start in range(0, len(chunk), PIECE_BYTES):
            yield SnapshotPart(data=chunk[start : start + PIECE_BYTES], is_whole=start + PIECE_BYTES >= len(chunk))
    yield SnapshotPart(digest=hasher.digest())


async def fetch_snapshot(peers: Peers, command_log: CommandLog, *, after: int) -> Snapshot:
    """A state beyond `after`, stored as a snapshot of this server; raises Unavailable when no server provides one."""
    problems = []
    for name in peers.names:
        try:
            return await _fetch_from(name, peers, command_log, after=after)
        except (YurtError, TimeoutError) as error:
            problems.append(f"{name}: {str(error) or 'no answer in time'}")
    raise Unavailable(
        "no other server gave a snapshot, and the log no longer reaches back to this server's state: "
        f"{'; '.join(problems) or 'no other server is known'}"
    )


async def _fetch_from(name: str, peers: Peers, command_log: CommandLog, *, after: int) -> Snapshot:
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        async with aclosing(peers.peer(name).snapshot(after)) as parts:
            index = await _receive(parts, file)
        state = await asyncio.to_thread(lambda: snapshots.decode(_chunks(file)))
        if state.index != index or index <= after:
            raise Invalid(f"the snapshot is of index {state.index}, not of {index}")
        await command_log.save_snapshot(index, _chunks(file))
    log.info("snapshot fetched: index=%d server=%s", index, name)
    return state


async def _receive(parts: AsyncGenerator[SnapshotPart], file: IO[bytes]) -> int:
    """Write the length-prefixed chunks; returns the state's index after verifying its digest."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    index, digest, chunk = 0, b"", bytearray()
    while True:
        async with asyncio.timeout(PART_LIMIT_S):
            part = await anext(parts, None)
        if part is None:
            break
        index, digest = part.index or index, part.digest
        chunk += part.data
        if part.is_whole:
            hasher.update(chunk)
            await asyncio.to_thread(file.write, _length.pack(len(chunk)) + chunk)
            chunk.clear()
    if not digest or digest != hasher.digest():
        raise Invalid("the snapshot is not whole")
    return index


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while head := file.read(_length.size):
        yield file.read(_length.unpack(head)[0])
