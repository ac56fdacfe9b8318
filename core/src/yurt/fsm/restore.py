"""Restores a snapshot into a running cluster by commands of the log.

The snapshot travels in pieces that a command can carry; the last command replaces every table at once, or is rejected
and changes nothing. The log goes on where it was: rows that come from a log that was further get the index of the
restore in the place of a higher one, so that no reader sees an index that the log has not reached (invariant A5).
Nodes that were not down begin again as initializing: what became of their allocations since the snapshot, only they
know, and they tell all of it before they are ready again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar, assert_never

import msgspec

from yurt.fsm import snapshot
from yurt.fsm.acl.tokens import without_revoked
from yurt.fsm.edit import Edit
from yurt.fsm.reject import invalid, not_found
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, replace
from yurt.state import TABLES, Snapshot, Tables
from yurt.state.schema import OnRestore
from yurt.structs import status
from yurt.structs.cluster import RestoreChunk
from yurt.structs.commands import FinishRestore, Rejected, RestoreCommand, StageRestore
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.rules import RESTORED_LOSS_RULES

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Value)

PIECES_MAX: Final = 16_384
LENGTH_BYTES: Final = 8


def framed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of a snapshot with length prefixes; the stream may be split anywhere."""
    for chunk in chunks:
        yield len(chunk).to_bytes(LENGTH_BYTES, "big")
        yield chunk


def unframed(data: bytes) -> Iterator[bytes]:
    """The inverse of `framed`; raises Invalid for a truncated stream."""
    view, at = memoryview(data), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + LENGTH_BYTES], "big")
        at += LENGTH_BYTES
        if at + size > len(view):
            raise Invalid("the snapshot is cut off")
        yield bytes(view[at : at + size])
        at += size


def apply_restore(edit: Edit, command: RestoreCommand) -> Rejected | None:
    """Apply a restore command."""
    match command:
        case StageRestore():
            return _stage(edit, command)
        case FinishRestore():
            return _finish(edit, command)
        case _:
            assert_never(command)


def _stage(edit: Edit, command: StageRestore) -> Rejected | None:
    if not command.restore_id or not 0 <= command.number < PIECES_MAX:
        return invalid(f"a restore has an id and at most {PIECES_MAX} pieces")
    if command.number == 0:
        _drop_staged(edit)
    edit.tx.put(Tables.restore_chunks, (command.restore_id, command.number), RestoreChunk(data=command.data))
    return None


def _finish(edit: Edit, command: FinishRestore) -> Rejected | None:
    if not 0 < command.count <= PIECES_MAX:
        return invalid(f"a restore has at least one piece and at most {PIECES_MAX}")
    keys = [(command.restore_id, number) for number in range(command.count)]
    if len(edit.tx.present(Tables.restore_chunks, keys)) < command.count:
        return not_found("pieces of the snapshot are missing; restore it again")
    data = b"".join(piece.data for piece in edit.tx.rows(Tables.restore_chunks, keys))
    if hashlib.sha256(data).hexdigest() != command.digest:
        return invalid("the snapshot's pieces do not fit its digest; restore it again")
    try:
        restored = snapshot.decode(unframed(data))
    except (Invalid, msgspec.MsgspecError, ValueError, LookupError) as error:
        return invalid(f"the snapshot cannot be read: {error}")
    _drop_staged(edit)
    edit.counts_usage = False
    _replace(edit, restored)
    return None


def _drop_staged(edit: Edit) -> None:
    for key in _ordered(edit.tx.base.restore_chunks.keys()):
        edit.tx.delete(Tables.restore_chunks, key)


def _replace(edit: Edit, restored: Snapshot) -> None:
    jobs: dict[int, Job] = {}
    revoked = without_revoked(restored, edit.tx.base)
    for name, schema in TABLES.items():
        if schema.on_restore is OnRestore.KEEP:
            continue
        table = edit.tx.base.table(name)
        rows = schema.empty() if schema.on_restore is OnRestore.CLEAR else restored.table(name)
        is_merged, is_token = schema.on_restore is OnRestore.MERGE, name == Tables.acl_tokens.name
        excluded = revoked if is_token else frozenset()
        for key in () if is_merged else _ordered(table.keys()):
            if key not in rows:
                edit.tx.delete(schema, key)
        for key in _ordered(rows.keys()):
            row = rows[key]
            # Earlier rights of a changed token, and a replaced secret, do not come back (ADR 0022).
            if key in excluded or ((is_merged or is_token) and key in table):
                continue
            if restored.index > edit.index:
                row = _bounded(row, edit.index, jobs)
                assert getattr(row, "modify_index", 0) <= edit.index, (
                    key,
                    "a reader would wait for a later index (A5)",
                )
            if isinstance(row, Node):
                row = _begun_anew(edit, row)
            if table.get(key) != row:
                edit.tx.put(schema, key, row)


def _begun_anew(edit: Edit, node: Node) -> Node:
    """The node as one that is not ready before it has heard of the restore and has reported all its allocations."""
    if node.status != status.NODE_DOWN:
        return replace(node, status=status.NODE_INIT, last_missed_heartbeat_index=edit.index)
    if edit.rules_version < RESTORED_LOSS_RULES:
        return node
    # Its agent may have heard of the loss in the snapshot already: that of the restore must be another one.
    return replace(node, last_missed_heartbeat_index=edit.index)


def _ordered(keys: Iterable[K]) -> list[K]:
    """The rows in an order that is the same on every replica."""
    return sorted(keys, key=repr)


def _bounded(row: V, index: int, jobs: dict[int, Job]) -> V:
    """The row with its indexes limited to `index`; jobs shared by allocations stay shared."""
    changes: dict[str, object] = {
        name: index
        for name in row.__struct_fields__
        if name.endswith("_index") and isinstance(value := getattr(row, name), int) and value > index
    }
    job = getattr(row, "job", None)
    if isinstance(job, Job):
        if id(job) not in jobs:
            jobs[id(job)] = _bounded(job, index, jobs)
        changes["job"] = jobs[id(job)]
    health = getattr(row, "deployment_status", None)
    if health is not None and health.modify_index > index:
        changes["deployment_status"] = replace(health, modify_index=index)
    return replace(row, **changes) if changes else row
