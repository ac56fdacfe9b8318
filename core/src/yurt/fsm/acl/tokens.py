"""Tokens: bootstrap, creation, change, revocation, and records of revoked ones.

A token that was revoked leaves a revocation behind, which outlives a restored snapshot: the state before the
revocation cannot bring the token back (`without_revoked`). An expired token needs none, because it comes back expired;
so the revocation of a token that expires is forgotten when its time is over. The table is bounded: beyond the bound the
oldest are forgotten and the floor rises, under which only tokens that are still there are restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot, Tables
from yurt.structs.acl import MANAGEMENT, ACLBootstrap, ACLRevocation, ACLToken, ACLTokenRoleLink, is_expired
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import (
    BootstrapACL,
    CollectACL,
    CreateACLLoginToken,
    CreateACLToken,
    DeleteACLTokens,
    UpdateACLToken,
)

REVOCATIONS_MAX: Final = 100_000
"""The maximum number of recorded revocations; beyond it, the oldest quarter is dropped at once."""
FLOOR: Final = ""
"""The key of the row that represents all dropped revocations."""


def bootstrap(edit: Edit, command: BootstrapACL) -> Rejected | None:
    """Create the first management token; a reset names the index of the last bootstrap."""
    existing: ACLBootstrap | None = edit.tx.get(Tables.acl_bootstrap, "")
    if existing is not None and command.reset_index is None:
        return conflict(f"ACL bootstrap already done (reset index: {existing.modify_index})")
    if existing is not None and command.reset_index != existing.modify_index:
        reset_index = existing.modify_index
        return invalid(f"Invalid bootstrap reset index (specified {command.reset_index}, reset index: {reset_index})")
    if command.token.type != MANAGEMENT:
        return invalid("the first token is a management token")
    refused = _put_new(edit, command.token)
    if refused is None:
        row = ACLBootstrap(
            accessor_id=command.token.accessor_id,
            create_index=edit.index if existing is None else existing.create_index,
            modify_index=edit.index,
        )
        edit.tx.put(Tables.acl_bootstrap, "", row)
    return refused


def create_token(edit: Edit, command: CreateACLToken) -> Rejected | None:
    """Create a token under unused ids."""
    return _put_new(edit, command.token)


def create_login_token(edit: Edit, command: CreateACLLoginToken) -> Rejected | None:
    """Create the token of a login; one login creates only one, even if that one was revoked."""
    accessor_id = command.token.accessor_id
    is_revoked = edit.tx.get(Tables.acl_revocations, accessor_id) is not None
    if is_revoked or edit.tx.get(Tables.acl_tokens, accessor_id) is not None:
        return conflict("this login has been used")
    return _put_new(edit, command.token)


def update_token(edit: Edit, command: UpdateACLToken) -> Rejected | None:
    """Change a token's rights; its ids, expiry and scope stay."""
    token = command.token
    existing: ACLToken | None = edit.tx.get(Tables.acl_tokens, token.accessor_id)
    if existing is None:
        return invalid(f"cannot find token {token.accessor_id}")
    if token.is_global != existing.is_global:
        return invalid("cannot toggle global mode")
    if token.expiration_ttl not in (0, existing.expiration_ttl):
        return invalid("cannot update expiration TTL")
    if token.expiration_time not in (0, existing.expiration_time):
        return invalid("cannot update expiration time")
    refused = _missing_role(edit, token.roles)
    if refused is not None:
        return refused
    changed = replace(
        existing,
        name=token.name,
        type=token.type,
        policies=token.policies,
        roles=_by_id(token.roles),
        modify_index=edit.index,
    )
    edit.tx.put(Tables.acl_tokens, existing.accessor_id, changed)
    return None


def delete_tokens(edit: Edit, command: DeleteACLTokens) -> Rejected | None:
    """Revoke all of the tokens, or none."""
    missing = [each for each in command.accessor_ids if edit.tx.get(Tables.acl_tokens, each) is None]
    if missing:
        return not_found(f"Cannot delete nonexistent tokens: {', '.join(missing)}")
    for accessor_id in dict.fromkeys(command.accessor_ids):
        token: ACLToken | None = edit.tx.get(Tables.acl_tokens, accessor_id)
        assert token is not None, accessor_id
        _drop(edit, accessor_id)
        revocation = ACLRevocation(
            accessor_id=accessor_id,
            expiration_time=UnixNano(token.expiration_time),
            token_create_time=UnixNano(token.create_time),
            create_index=edit.index,
            modify_index=edit.index,
        )
        edit.tx.put(Tables.acl_revocations, accessor_id, revocation)
    _bound_revocations(edit)
    return None


def collect(edit: Edit, command: CollectACL) -> Rejected | None:
    """Delete expired objects, checked again because the proposer may have read an older state."""
    for accessor_id in command.accessor_ids:
        token: ACLToken | None = edit.tx.get(Tables.acl_tokens, accessor_id)
        if token is not None and is_expired(token, command.now) and token.create_time < command.created_before:
            _drop(edit, accessor_id)
    for secret_hash in command.one_time_hashes:
        one_time = edit.tx.get(Tables.one_time_tokens, secret_hash)
        if one_time is not None and one_time.expires_at <= command.now:
            edit.tx.delete(Tables.one_time_tokens, secret_hash)
    for revoked_id in command.revoked_ids:
        revoked = edit.tx.get(Tables.acl_revocations, revoked_id)
        if revoked is not None and 0 < revoked.expiration_time <= command.now:
            edit.tx.delete(Tables.acl_revocations, revoked_id)
    for session_id in command.session_ids:
        session = edit.tx.get(Tables.ended_sessions, session_id)
        if session is not None and session.forget_at <= command.now:
            edit.tx.delete(Tables.ended_sessions, session_id)
    return None


def without_revoked(restored: Snapshot, present: Snapshot) -> frozenset[str]:
    """The accessor ids in a restored snapshot whose tokens remain revoked in the present state."""
    floor = present.acl_revocations.get(FLOOR)
    is_below = floor is not None and restored.index < floor.modify_index
    return frozenset(
        accessor_id
        for accessor_id in restored.acl_tokens.keys()  # noqa: SIM118 - a Table is not a mapping
        if accessor_id in present.acl_revocations or (is_below and accessor_id not in present.acl_tokens)
    )


def last_revocation(state: Snapshot, accessor_id: str, *, after: int) -> int:
    """The index at which a token was, or may have been, revoked since `after`; 0 if it was not."""
    rows = (state.acl_revocations.get(key) for key in (accessor_id, FLOOR))
    return max((row.modify_index for row in rows if row is not None and row.modify_index > after), default=0)


def _put_new(edit: Edit, token: ACLToken) -> Rejected | None:
    if not token.accessor_id or not token.secret_hash:
        return invalid("a token has an accessor id and a secret")
    if edit.tx.get(Tables.acl_tokens, token.accessor_id) is not None:
        return conflict("a token with this accessor id exists")
    if edit.tx.count_where(Tables.acl_tokens, "secret", token.secret_hash) > 0:
        return conflict("another token has this secret")
    refused = _missing_role(edit, token.roles)
    if refused is not None:
        return refused
    stored = replace(token, roles=_by_id(token.roles), create_index=edit.index, modify_index=edit.index)
    edit.tx.put(Tables.acl_tokens, token.accessor_id, stored)
    # An operator who may create tokens recreates this one on purpose.
    if edit.tx.get(Tables.acl_revocations, token.accessor_id) is not None:
        edit.tx.delete(Tables.acl_revocations, token.accessor_id)
    return None


def _drop(edit: Edit, accessor_id: str) -> None:
    """Delete a token and the one-time tokens for it."""
    edit.tx.delete(Tables.acl_tokens, accessor_id)
    for secret_hash in edit.tx.keys_where(Tables.one_time_tokens, "accessor", accessor_id):
        edit.tx.delete(Tables.one_time_tokens, secret_hash)


def _missing_role(edit: Edit, links: Iterable[ACLTokenRoleLink]) -> Rejected | None:
    for link in links:
        if edit.tx.get(Tables.acl_roles, link.id) is None:
            return invalid(f"cannot find role {link.name or link.id}")
    return None


def _by_id(links: Iterable[ACLTokenRoleLink]) -> tuple[ACLTokenRoleLink, ...]:
    """The links to roles by id, each once: the name of a role may change."""
    return tuple(ACLTokenRoleLink(id=each) for each in dict.fromkeys(link.id for link in links))


def _bound_revocations(edit: Edit) -> None:
    base = edit.tx.base.acl_revocations
    if len(base) < REVOCATIONS_MAX:
        return
    oldest = sorted(
        (each for each in base.values() if each.accessor_id), key=lambda each: (each.modify_index, each.accessor_id)
    )
    for each in oldest[: REVOCATIONS_MAX // 4]:
        edit.tx.delete(Tables.acl_revocations, each.accessor_id)
    last = oldest[REVOCATIONS_MAX // 4 - 1].modify_index
    edit.tx.put(Tables.acl_revocations, FLOOR, ACLRevocation(create_index=last, modify_index=last))
