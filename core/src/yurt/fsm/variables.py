"""Variables, their locks, and root keys.

A locked variable can be changed only by a command that names the lock. A check index rejects a change that was made
for another version of the variable; 0 means that the variable must not exist.
"""

from __future__ import annotations

from typing import Final, assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found, stale
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.state.tables import AnyTable
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.commands import (
    DeleteRootKeys,
    DeleteVariable,
    LockVariable,
    PutRootKey,
    PutVariable,
    Rejected,
    RekeyACLAuthMethods,
    RekeyVariables,
    ReleaseVariableLock,
    VariableCommand,
)
from yurt.structs.variable import KEY_ACTIVE, KEY_INACTIVE, KEY_REKEYING, EncryptedVariable, RootKeyMeta

SEALED: Final[tuple[AnyTable, ...]] = (Tables.variables, Tables.acl_auth_methods)
"""Tables with values encrypted by root keys."""


def apply_variable(edit: Edit, command: VariableCommand) -> Rejected | None:
    """Apply a command on variables or root keys."""
    match command:
        case PutVariable():
            return _put(edit, command)
        case DeleteVariable():
            return _delete(edit, command)
        case LockVariable():
            return _lock(edit, command)
        case ReleaseVariableLock():
            return _release(edit, command)
        case RekeyVariables():
            return _rekey(edit, command)
        case RekeyACLAuthMethods():
            return _rekey_methods(edit, command)
        case PutRootKey():
            return _put_key(edit, command)
        case DeleteRootKeys():
            return _delete_keys(edit, command)
        case _:
            assert_never(command)


def _stored(edit: Edit, key: tuple[str, str]) -> EncryptedVariable | None:
    row: EncryptedVariable | None = edit.tx.get(Tables.variables, key)
    return row


def _write(edit: Edit, variable: EncryptedVariable, existing: EncryptedVariable | None, now: UnixNano) -> None:
    stored = replace(
        variable,
        create_index=edit.index if existing is None else existing.create_index,
        create_time=now if existing is None else existing.create_time,
        modify_index=edit.index,
        modify_time=now,
    )
    assert existing is None or existing.key == stored.key, (
        stored.key,
        "a write replaces the variable that was checked",
    )
    edit.tx.put(Tables.variables, variable.key, stored)


def _refused(existing: EncryptedVariable | None, check_index: int | None, lock_id: str) -> Rejected | None:
    if existing is not None and existing.lock is not None and existing.lock.id != lock_id:
        return conflict("attempting to modify locked variable")
    if lock_id and (existing is None or existing.lock is None):
        return conflict("variable does not hold a lock")
    at = 0 if existing is None else existing.modify_index
    if check_index is not None and check_index != at:
        return conflict(f"cas error: requested index {check_index}; found index {at}")
    return None


def _over_quota(
    edit: Edit, variable: EncryptedVariable, existing: EncryptedVariable | None, region: str
) -> Rejected | None:
    if edit.quota_of(variable.namespace) is None:
        return None
    from yurt.fsm.quotas.storage import variable_refusal

    return variable_refusal(edit, variable, existing, region)


def _put(edit: Edit, command: PutVariable) -> Rejected | None:
    variable = command.variable
    if not variable.path or edit.tx.get(Tables.root_keys, variable.key_id) is None:
        return invalid("a variable needs a path and a root key that exists")
    if edit.tx.get(Tables.namespaces, variable.namespace) is None:
        return not_found(f'nonexistent namespace "{variable.namespace}"')
    existing = _stored(edit, variable.key)
    refused = _refused(existing, command.check_index, command.lock_id)
    refused = refused or _over_quota(edit, variable, existing, command.region)
    if refused is None:
        _write(edit, replace(variable, lock=None if existing is None else existing.lock), existing, command.now)
    return refused


def _delete(edit: Edit, command: DeleteVariable) -> Rejected | None:
    key = (command.namespace, command.path)
    existing = _stored(edit, key)
    refused = _refused(existing, command.check_index, command.lock_id)
    if refused is None and existing is not None:
        edit.tx.delete(Tables.variables, key)
    return refused


def _lock(edit: Edit, command: LockVariable) -> Rejected | None:
    """Lock a variable, created if missing; its items stay if the command has none, or asks for it."""
    variable = command.variable
    existing = _stored(edit, variable.key)
    if variable.lock is None or not variable.lock.id or not variable.path:
        return invalid("a lock needs an id and a path")
    if edit.tx.get(Tables.namespaces, variable.namespace) is None:
        return not_found(f'nonexistent namespace "{variable.namespace}"')
    if existing is not None and existing.lock is not None and existing.lock.id != variable.lock.id:
        return conflict("variable is already locked")
    if existing is None and not variable.data:
        return stale(f'variable "{variable.path}" is not there any more, and the lock brings no items')
    if existing is not None and (command.keeps_items or not variable.data):
        variable = replace(variable, data=existing.data, key_id=existing.key_id)
    if edit.tx.get(Tables.root_keys, variable.key_id) is None:
        return invalid("a variable needs a root key that exists")
    refused = _over_quota(edit, variable, existing, command.region)
    if refused is None:
        _write(edit, variable, existing, command.now)
    return refused


def _release(edit: Edit, command: ReleaseVariableLock) -> Rejected | None:
    existing = _stored(edit, (command.namespace, command.path))
    if existing is None:
        return not_found("variable not found")
    if existing.lock is None or existing.lock.id != command.lock_id:
        return conflict("variable does not hold this lock")
    _write(edit, replace(existing, lock=None), existing, command.now)
    return None


def _rekey(edit: Edit, command: RekeyVariables) -> Rejected | None:
    """Reencrypt variables with a new key; those changed meanwhile are skipped, and no index moves."""
    for variable in command.variables:
        existing = _stored(edit, variable.key)
        is_same = existing is not None and existing.modify_index == variable.modify_index
        if existing is not None and is_same and edit.tx.get(Tables.root_keys, variable.key_id) is not None:
            edit.tx.put(Tables.variables, variable.key, replace(existing, key_id=variable.key_id, data=variable.data))
    return None


def _rekey_methods(edit: Edit, command: RekeyACLAuthMethods) -> Rejected | None:
    """`_rekey` for the secrets of login methods."""
    for method in command.methods:
        existing: ACLAuthMethod | None = edit.tx.get(Tables.acl_auth_methods, method.name)
        is_same = existing is not None and existing.modify_index == method.modify_index
        if existing is not None and is_same and edit.tx.get(Tables.root_keys, method.key_id) is not None:
            sealed = replace(existing, key_id=method.key_id, sealed_secrets=method.sealed_secrets)
            edit.tx.put(Tables.acl_auth_methods, method.name, sealed)
    return None


def _put_key(edit: Edit, command: PutRootKey) -> Rejected | None:
    """Store a key; a new active key replaces the previous one."""
    key = command.key
    if not key.key_id:
        return invalid("a root key without an id")
    existing: RootKeyMeta | None = edit.tx.get(Tables.root_keys, key.key_id)
    created = edit.index if existing is None else existing.create_index
    if key.state == KEY_ACTIVE:
        for other in sorted(edit.tx.base.root_keys.values(), key=lambda each: each.key_id):
            if other.key_id != key.key_id and other.state == KEY_ACTIVE:
                state = KEY_REKEYING if command.is_full else KEY_INACTIVE
                edit.tx.put(Tables.root_keys, other.key_id, replace(other, state=state, modify_index=edit.index))
    edit.tx.put(Tables.root_keys, key.key_id, replace(key, create_index=created, modify_index=edit.index))
    return None


def _delete_keys(edit: Edit, command: DeleteRootKeys) -> Rejected | None:
    for key_id in command.key_ids:
        existing: RootKeyMeta | None = edit.tx.get(Tables.root_keys, key_id)
        if existing is None:
            return not_found("root key not found")
        if existing.state == KEY_ACTIVE:
            return invalid("active root key cannot be deleted - call rotate first")
        is_used = any(edit.tx.count_where(table, "root_key", key_id) for table in SEALED)
        if is_used and not command.is_forced:
            return conflict("root key in use, cannot delete")
        edit.tx.delete(Tables.root_keys, key_id)
    return None
