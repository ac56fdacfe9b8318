"""Policies and roles. A write without a change moves no index, so that no policy is compiled again."""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.acl import ACLPolicy, ACLRole
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import (
    CreateACLRole,
    DeleteACLPolicies,
    DeleteACLRoles,
    UpdateACLRole,
    UpsertACLPolicies,
)


def put_policies(edit: Edit, command: UpsertACLPolicies) -> Rejected | None:
    """Create or change policies."""
    for policy in command.policies:
        if not policy.name:
            return invalid("a policy without a name")
        existing: ACLPolicy | None = edit.tx.get(Tables.acl_policies, policy.name)
        created = edit.index if existing is None else existing.create_index
        if existing is None or replace(policy, create_index=created, modify_index=existing.modify_index) != existing:
            stored = replace(policy, create_index=created, modify_index=edit.index)
            edit.tx.put(Tables.acl_policies, policy.name, stored)
    return None


def delete_policies(edit: Edit, command: DeleteACLPolicies) -> Rejected | None:
    """Delete policies; tokens and roles that name them lose their rights."""
    for name in dict.fromkeys(command.names):
        if edit.tx.get(Tables.acl_policies, name) is None:
            return not_found("ACL policy not found")
        edit.tx.delete(Tables.acl_policies, name)
    return None


def create_role(edit: Edit, command: CreateACLRole) -> Rejected | None:
    """Create a role under an unused id and name."""
    role = command.role
    if not role.id or edit.tx.get(Tables.acl_roles, role.id) is not None:
        return conflict("a role with this id exists")
    if edit.tx.count_where(Tables.acl_roles, "name", role.name):
        return invalid(f"role with name {role.name} already exists")
    refused = _missing_policy(edit, role)
    if refused is None:
        edit.tx.put(Tables.acl_roles, role.id, replace(role, create_index=edit.index, modify_index=edit.index))
    return refused


def update_role(edit: Edit, command: UpdateACLRole) -> Rejected | None:
    """Change the policies, name or description of a role."""
    role = command.role
    existing: ACLRole | None = edit.tx.get(Tables.acl_roles, role.id)
    if existing is None:
        return invalid("cannot find role ID")
    if any(each != role.id for each in edit.tx.keys_where(Tables.acl_roles, "name", role.name)):
        return conflict(f"ACL role with name {role.name} already exists")
    refused = _missing_policy(edit, role)
    if refused is not None:
        return refused
    same = replace(role, create_index=existing.create_index, modify_index=existing.modify_index)
    if same != existing:
        edit.tx.put(Tables.acl_roles, role.id, replace(same, modify_index=edit.index))
    return None


def delete_roles(edit: Edit, command: DeleteACLRoles) -> Rejected | None:
    """Delete roles; the links of tokens to them have no effect any more."""
    for role_id in dict.fromkeys(command.role_ids):
        if edit.tx.get(Tables.acl_roles, role_id) is None:
            return not_found("ACL role not found")
        edit.tx.delete(Tables.acl_roles, role_id)
    return None


def _missing_policy(edit: Edit, role: ACLRole) -> Rejected | None:
    for link in role.policies:
        if edit.tx.get(Tables.acl_policies, link.name) is None:
            return invalid(f"cannot find policy {link.name}")
    return None
