"""Garbage collection for access control: expired and one-time tokens, records of revoked tokens and of
ended sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import is_expired
from yurt.structs.commands import CollectACL

BATCH: Final = 500
"""The maximum number of rows of each kind that one command deletes."""


def expired(
    state: Snapshot, now: UnixNano, created_before: UnixNano, *, is_authority: bool = True
) -> Iterator[CollectACL]:
    """Commands that delete expired objects; tokens only after a period in which their expiry was visible.

    Global tokens are collected in the authoritative region: elsewhere they would be copied again.
    """
    tokens = [
        token.accessor_id
        for token in state.acl_tokens.each_where("expiring", "expiring")
        if is_expired(token, now) and token.create_time < created_before and (is_authority or not token.is_global)
    ]
    one_time = [token.secret_hash for token in state.one_time_tokens.values() if token.expires_at <= now]
    revoked = [each.accessor_id for each in state.acl_revocations.values() if 0 < each.expiration_time <= now]
    sessions = [each.id for each in state.ended_sessions.values() if each.forget_at <= now]
    for some in zip_longest(*(_batches(sorted(ids)) for ids in (tokens, one_time, revoked, sessions)), fillvalue=()):
        yield CollectACL(
            now=now,
            created_before=created_before,
            accessor_ids=tuple(some[0]),
            one_time_hashes=tuple(some[1]),
            revoked_ids=tuple(some[2]),
            session_ids=tuple(some[3]),
        )


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), BATCH):
        yield ids[at : at + BATCH]
