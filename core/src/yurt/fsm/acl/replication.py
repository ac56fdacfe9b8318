"""Copies of the authoritative region's policies, roles, global tokens, login methods and binding rules.

They are stored as they are there. What a row refers to may not have been copied yet, so nothing that one names is
looked up: a policy or a role that is missing grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from yurt.fsm.acl.login import sealed_without_key
from yurt.fsm.edit import Edit
from yurt.fsm.reject import invalid
from yurt.sdk.value import Value, replace
from yurt.state import Snapshot
from yurt.state.tables import AnyTable, Tables
from yurt.structs.acl import ACLToken
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import (
    ReplicateACLAuthMethods,
    ReplicateACLBindingRules,
    ReplicateACLRoles,
    ReplicateACLTokens,
)

REVOKED = "it was revoked here"
ACCESSOR_CONFLICT = "a local token has its accessor id"
SECRET_CONFLICT = "another token has its secret"


def replicate_roles(edit: Edit, command: ReplicateACLRoles) -> Rejected | None:
    """Store roles; two may have the same name until all of them have been copied."""
    for role in command.roles:
        if not role.id:
            return invalid("a role without an id")
        _put(edit, Tables.acl_roles, role.id, role)
    return None


def replicate_tokens(edit: Edit, command: ReplicateACLTokens) -> Rejected | None:
    """Store global tokens, except those that `token_refusal` names."""
    for token in command.tokens:
        if not token.accessor_id or not token.secret_hash or not token.is_global:
            return invalid("a token of another region is global and has an accessor id and a secret")
        existing: ACLToken | None = edit.tx.get(Tables.acl_tokens, token.accessor_id)
        revoked = edit.tx.get(Tables.acl_revocations, token.accessor_id)
        owners = edit.tx.keys_where(Tables.acl_tokens, "secret", token.secret_hash)
        if _refusal(token, existing, None if revoked is None else revoked.token_create_time, owners):
            continue
        _put(edit, Tables.acl_tokens, token.accessor_id, token)
        if revoked is not None:
            edit.tx.delete(Tables.acl_revocations, token.accessor_id)
    return None


def token_refusal(state: Snapshot, token: ACLToken) -> str:
    """The reason why `replicate_tokens` leaves a token out; "" if it stores it."""
    revoked = state.acl_revocations.get(token.accessor_id)
    owners = (each.accessor_id for each in state.acl_tokens.where("secret", token.secret_hash))
    revoked_at = None if revoked is None else revoked.token_create_time
    return _refusal(token, state.acl_tokens.get(token.accessor_id), revoked_at, tuple(owners))


def replicate_methods(edit: Edit, command: ReplicateACLAuthMethods) -> Rejected | None:
    """Store login methods."""
    for method in command.methods:
        if not method.name:
            return invalid("a login method without a name")
        refused = sealed_without_key(edit, method)
        if refused is not None:
            return refused
        _put(edit, Tables.acl_auth_methods, method.name, method)
    return None


def replicate_rules(edit: Edit, command: ReplicateACLBindingRules) -> Rejected | None:
    """Store binding rules."""
    for rule in command.rules:
        if not rule.id:
            return invalid("a binding rule without an id")
        _put(edit, Tables.acl_binding_rules, rule.id, rule)
    return None


def _refusal(token: ACLToken, existing: ACLToken | None, revoked_at: int | None, owners: Iterable[str]) -> str:
    # A snapshot that the authoritative region restored may hold a token that was revoked since. One that was made
    # again under the same accessor id was made at another time.
    if revoked_at is not None and revoked_at in (0, token.create_time):
        return REVOKED
    if existing is not None and not existing.is_global:
        return ACCESSOR_CONFLICT
    return SECRET_CONFLICT if any(each != token.accessor_id for each in owners) else ""


def _put(edit: Edit, table: AnyTable, key: str, row: Value) -> None:
    """Store a row under the indexes of this region; a row with the same content keeps its indexes."""
    existing = edit.tx.get(table, key)
    if existing is None:
        edit.tx.put(table, key, replace(row, create_index=edit.index, modify_index=edit.index))
        return
    same = replace(row, create_index=existing.create_index, modify_index=existing.modify_index)
    if same != existing:
        edit.tx.put(table, key, replace(same, modify_index=edit.index))
