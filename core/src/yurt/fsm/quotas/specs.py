"""Commands on quotas.

A namespace names a quota only while that exists, and a quota is deleted only while no namespace names it: both are
decided here, so whichever of two concurrent commands comes second is rejected.
"""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.commands import DeleteQuotas, Rejected, UpsertQuotas
from yurt.structs.quota import QuotaSpec


def apply_quota(edit: Edit, command: UpsertQuotas | DeleteQuotas) -> Rejected | None:
    """Apply a command on quotas."""
    match command:
        case UpsertQuotas():
            return _put(edit, command)
        case DeleteQuotas():
            return _delete(edit, command)
        case _:
            assert_never(command)


def _put(edit: Edit, command: UpsertQuotas) -> Rejected | None:
    for spec in command.quotas:
        if not spec.name:
            return invalid("a quota without a name")
        existing: QuotaSpec | None = edit.tx.get(Tables.quotas, spec.name)
        created = edit.index if existing is None else existing.create_index
        edit.tx.put(Tables.quotas, spec.name, replace(spec, create_index=created, modify_index=edit.index))
    return None


def _delete(edit: Edit, command: DeleteQuotas) -> Rejected | None:
    for name in command.names:
        if edit.tx.get(Tables.quotas, name) is None:
            return not_found(f'quota "{name}" not found')
        users = edit.tx.count_where(Tables.namespaces, "quota", name)
        if users:
            # Their names are not told: who may write quotas need not see every namespace.
            number = "a namespace" if users == 1 else f"{users} namespaces"
            return conflict(f'quota "{name}" is named by {number}; apply them with another quota or none first')
        edit.tx.delete(Tables.quotas, name)
    return None
