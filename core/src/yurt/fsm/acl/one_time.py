"""One-time tokens: at most one per accessor, valid for a single use."""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import denied, invalid
from yurt.sdk.errors import DENIED
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.acl import ACLToken, OneTimeToken, is_expired
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import PutOneTimeToken, TakeOneTimeToken


def put_one_time(edit: Edit, command: PutOneTimeToken) -> Rejected | None:
    """Store a one-time token for a valid token; it replaces an earlier one of the same accessor."""
    token = command.token
    if not token.secret_hash or not token.accessor_id:
        return invalid("a one-time token has a secret and an accessor id")
    holder: ACLToken | None = edit.tx.get(Tables.acl_tokens, token.accessor_id)
    if holder is None or is_expired(holder, command.now):
        return denied(DENIED)
    for earlier in edit.tx.keys_where(Tables.one_time_tokens, "accessor", token.accessor_id):
        edit.tx.delete(Tables.one_time_tokens, earlier)
    stored = replace(token, create_index=edit.index, modify_index=edit.index)
    edit.tx.put(Tables.one_time_tokens, token.secret_hash, stored)
    return None


def take_one_time(edit: Edit, command: TakeOneTimeToken) -> Rejected | None:
    """Consume a one-time token."""
    existing: OneTimeToken | None = edit.tx.get(Tables.one_time_tokens, command.secret_hash)
    if existing is None or existing.expires_at <= command.now:
        return denied(DENIED)
    holder: ACLToken | None = edit.tx.get(Tables.acl_tokens, existing.accessor_id)
    if holder is None or is_expired(holder, command.now):
        return denied(DENIED)
    edit.tx.delete(Tables.one_time_tokens, command.secret_hash)
    return None
