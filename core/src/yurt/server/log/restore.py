"""Restores a snapshot: its parts go through the log, then the leader's duties restart.

The answer names what the restore changed in access control (ADR 0022): nobody should find out later that a policy is
the old one again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import IO, Any, Final

from yurt.fsm.restore import PIECES_MAX
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import Value, replace
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.log_writer import Committed
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.state.persistent_table import Table
from yurt.structs.commands import FinishRestore, RestoreCommand, StageRestore

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 512 * 1024
TERM_POLL_S: Final = 0.01
TERM_LIMIT_S: Final = 30.0
NAMES_MAX: Final = 1_000
"""The maximum number of names of each kind in an answer."""
LOGGED_MAX: Final = 20
ACCESS_TABLES: Final = ("acl_tokens", "acl_policies", "acl_roles", "acl_auth_methods", "acl_binding_rules")


class RestoredAccess(Value):
    """Objects that a restore made valid or changed: tokens by accessor id, roles and rules by id, the others by name.

    At most `NAMES_MAX` of each kind are named, in order; `count` is of all.
    """

    acl_tokens: tuple[str, ...] = ()
    acl_policies: tuple[str, ...] = ()
    acl_roles: tuple[str, ...] = ()
    acl_auth_methods: tuple[str, ...] = ()
    acl_binding_rules: tuple[str, ...] = ()
    count: int = 0


class Restored(Value):
    """The index of a restore, and its changes to access control."""

    index: int
    access: RestoredAccess


async def restore(replica: Replica, leader: CurrentLeader, state: IO[bytes], size: int) -> Restored:
    """Replace the state by the framed one in a file; returns once the duties run on the new state.

    The file is read a piece at a time; what stands in it was checked before (`storage.archive_check`).
    """
    terms, state_before = leader.terms, replica.state
    applied = await _through_log(replica, state, size)
    access = restored_access(state_before, applied.state)
    _log_restored(access)
    async with asyncio.timeout(TERM_LIMIT_S):
        while leader.terms == terms or not leader.is_local:
            await replica.env.sleep(TERM_POLL_S)
    return Restored(index=applied.index, access=access)


async def _through_log(replica: Replica, state: IO[bytes], size: int) -> Committed:
    """Propose the parts of a state and its end; raises Invalid or NotFound, and then nothing has changed."""
    count = -(-size // PIECE_BYTES)
    if not 0 < count <= PIECES_MAX:
        raise Invalid(f"a snapshot has 1 to {PIECE_BYTES * PIECES_MAX} bytes, this one {size}")
    restore_id, digest = replica.env.uuid(), hashlib.sha256()
    for number in range(count):
        piece = await asyncio.to_thread(state.read, PIECE_BYTES)
        digest.update(piece)
        await _propose_part(replica, StageRestore(restore_id=restore_id, number=number, data=piece))
    return await _propose_part(replica, FinishRestore(restore_id=restore_id, count=count, digest=digest.hexdigest()))


async def _propose_part(replica: Replica, command: RestoreCommand) -> Committed:
    """Propose a part; a refusal, as where a server of an older version joins meanwhile, drops the parts before it."""
    try:
        return await replica.propose(command)
    except (Invalid, NotFound, Conflict):
        await replica.propose(StageRestore(restore_id=command.restore_id, number=0, data=b""))
        raise


def restored_access(before: Snapshot, after: Snapshot) -> RestoredAccess:
    """The objects that grant new or changed rights in the second state; deleted ones grant none."""
    changed_by_table = {name: _changed(before.table(name), after.table(name)) for name in ACCESS_TABLES}
    count = sum(map(len, changed_by_table.values()))
    return RestoredAccess(count=count, **{name: tuple(keys[:NAMES_MAX]) for name, keys in changed_by_table.items()})


def _changed(before: Table[str, Any], after: Table[str, Any]) -> list[str]:
    if before is after:
        return []
    return sorted(key for key, row in after.items() if _content(before.get(key)) != _content(row))


def _content(row: Any) -> object:
    """A row without its indexes."""
    return None if row is None else replace(row, create_index=0, modify_index=0)


def _log_restored(access: RestoredAccess) -> None:
    """Log the restored access: a new cluster does not know the revocations after the snapshot."""
    if not access.count:
        return
    named = [(name, getattr(access, name)) for name in ACCESS_TABLES]
    log.warning(
        "restored snapshot: access control changed, revoke what must not be: count=%d %s",
        access.count, " ".join(f"{name}={','.join(keys[:LOGGED_MAX])!r}" for name, keys in named if keys),
    )  # fmt: skip
