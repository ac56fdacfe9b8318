"""Restores a snapshot: its parts go through the log, then the leader's duties restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import IO, Final

from yurt.fsm.restore import PIECES_MAX
from yurt.sdk.errors import Invalid, NotFound
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.structs.commands import FinishRestore, StageRestore

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 512 * 1024
TERM_POLL_S: Final = 0.01
TERM_LIMIT_S: Final = 30.0


async def restore(replica: Replica, leader: CurrentLeader, state: IO[bytes], size: int) -> int:
    """Replace the state by the framed one in a file; returns the index, once the duties run on the new state.

    The file is read a piece at a time; what stands in it was checked before (`storage.archive_check`).
    """
    count = -(-size // PIECE_BYTES)
    if not 0 < count <= PIECES_MAX:
        raise Invalid(f"a snapshot has 1 to {PIECE_BYTES * PIECES_MAX} bytes, this one {size}")
    restore_id, digest = replica.env.uuid(), hashlib.sha256()
    for number in range(count):
        piece = await asyncio.to_thread(state.read, PIECE_BYTES)
        digest.update(piece)
        await replica.propose(StageRestore(restore_id=restore_id, number=number, data=piece))
    before, known = leader.terms, _tokens_of(replica)
    try:
        applied = await replica.propose(FinishRestore(restore_id=restore_id, count=count, digest=digest.hexdigest()))
    except (Invalid, NotFound):
        await replica.propose(StageRestore(restore_id=restore_id, number=0, data=b""))
        raise
    _tell_revived(_tokens_of(replica) - known)
    async with asyncio.timeout(TERM_LIMIT_S):
        while leader.terms == before or not leader.is_local:
            await replica.env.sleep(TERM_POLL_S)
    return applied.index


def _tokens_of(replica: Replica) -> frozenset[str]:
    return frozenset(replica.state.acl_tokens.keys())


def _tell_revived(tokens: frozenset[str]) -> None:
    """Warn that tokens became valid: a new cluster does not know which were revoked after the snapshot."""
    if tokens:
        log.warning("restored snapshot: ACL tokens became valid, revoke those that must not be: tokens=%d", len(tokens))
