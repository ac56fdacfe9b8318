"""Login methods and binding rules."""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found, stale
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.acl import ACLAuthMethod, ACLBindingRule
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import (
    CreateACLBindingRule,
    DeleteACLAuthMethods,
    DeleteACLBindingRules,
    UpdateACLBindingRule,
    UpsertACLAuthMethod,
)


def put_auth_method(edit: Edit, command: UpsertACLAuthMethod) -> Rejected | None:
    """Create or change a login method; at most one is the default."""
    method = command.method
    if not method.name:
        return invalid("a login method needs a name")
    refused = sealed_without_key(edit, method)
    if refused is not None:
        return refused
    if method.default:
        for other in edit.tx.keys_where(Tables.acl_auth_methods, "default", "default"):
            if other != method.name:
                return invalid(f"default method already exists: {other}")
    existing: ACLAuthMethod | None = edit.tx.get(Tables.acl_auth_methods, method.name)
    stored = replace(
        method,
        create_time=method.modify_time if existing is None else existing.create_time,
        create_index=edit.index if existing is None else existing.create_index,
        modify_index=edit.index,
    )
    edit.tx.put(Tables.acl_auth_methods, method.name, stored)
    return None


def sealed_without_key(edit: Edit, method: ACLAuthMethod) -> Rejected | None:
    """The rejection of a login method whose secrets cannot be decrypted because their root key was removed."""
    if not method.key_id or edit.tx.get(Tables.root_keys, method.key_id) is not None:
        return None
    return stale(f'root key {method.key_id}, which sealed the secrets of login method "{method.name}", was removed')


def delete_auth_methods(edit: Edit, command: DeleteACLAuthMethods) -> Rejected | None:
    """Delete login methods; logins in progress by them fail, tokens that were issued stay."""
    for name in dict.fromkeys(command.names):
        if edit.tx.get(Tables.acl_auth_methods, name) is None:
            return not_found("ACL auth method not found")
        edit.tx.delete(Tables.acl_auth_methods, name)
    return None


def create_binding_rule(edit: Edit, command: CreateACLBindingRule) -> Rejected | None:
    """Create a rule under a new id."""
    rule = command.rule
    if not rule.id or edit.tx.get(Tables.acl_binding_rules, rule.id) is not None:
        return conflict("a binding rule with this id exists")
    if edit.tx.get(Tables.acl_auth_methods, rule.auth_method) is None:
        return invalid(f"ACL auth method {rule.auth_method} not found")
    stored = replace(rule, create_time=rule.modify_time, create_index=edit.index, modify_index=edit.index)
    edit.tx.put(Tables.acl_binding_rules, rule.id, stored)
    return None


def update_binding_rule(edit: Edit, command: UpdateACLBindingRule) -> Rejected | None:
    """Change a rule's condition or target; its login method cannot change."""
    rule = command.rule
    existing: ACLBindingRule | None = edit.tx.get(Tables.acl_binding_rules, rule.id)
    if existing is None:
        return invalid("cannot find binding rule ID")
    if rule.auth_method != existing.auth_method:
        return invalid("cannot update auth method for binding rule, create a new rule instead")
    if edit.tx.get(Tables.acl_auth_methods, rule.auth_method) is None:
        return invalid(f"ACL auth method {rule.auth_method} not found")
    stored = replace(
        rule, create_time=existing.create_time, create_index=existing.create_index, modify_index=edit.index
    )
    edit.tx.put(Tables.acl_binding_rules, rule.id, stored)
    return None


def delete_binding_rules(edit: Edit, command: DeleteACLBindingRules) -> Rejected | None:
    """Delete rules."""
    for rule_id in dict.fromkeys(command.rule_ids):
        if edit.tx.get(Tables.acl_binding_rules, rule_id) is None:
            return not_found("ACL binding rule not found")
        edit.tx.delete(Tables.acl_binding_rules, rule_id)
    return None
