"""Restoring a snapshot: its pieces go through the log, and the leader's duties begin anew afterwards."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from yurt.fsm.restore import PIECES_MAX
from yurt.sdk.errors import Invalid, NotFound
from yurt.structs.commands import FinishRestore, StageRestore

if TYPE_CHECKING:
    from yurt.server.server import Server

PIECE_BYTES: Final = 512 * 1024
TERM_POLL_S: Final = 0.01
TERM_LIMIT_S: Final = 30.0


async def restore(server: Server, data: bytes) -> int:
    """Replace the state by a framed snapshot; the index of the restore, once the duties run on the new state."""
    count = -(-len(data) // PIECE_BYTES)
    if not 0 < count <= PIECES_MAX:
        raise Invalid(f"a snapshot has 1 to {PIECE_BYTES * PIECES_MAX} bytes, this one {len(data)}")
    restore_id = server.env.uuid()
    for number in range(count):
        piece = data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        await server.propose(StageRestore(restore_id=restore_id, number=number, data=piece))
    digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
    before = server.term
    try:
        applied = await server.propose(FinishRestore(restore_id=restore_id, count=count, digest=digest))
    except (Invalid, NotFound):
        await server.propose(StageRestore(restore_id=restore_id, number=0, data=b""))
        raise
    async with asyncio.timeout(TERM_LIMIT_S):
        while server.term is before or not server.is_leader:
            await server.env.sleep(TERM_POLL_S)
    return applied.index
