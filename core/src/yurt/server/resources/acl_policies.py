"""Policies, roles, login methods and binding rules: validation, storage, deletion."""

from __future__ import annotations

from typing import Final, TypeVar

from yurt.acl.validation import check_auth_method, check_binding_rule, check_policy, check_role
from yurt.fsm.basis import expectation
from yurt.sdk.value import Value, replace, seconds
from yurt.server.config import ServerConfig
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.structs.acl import ACLAuthMethod, ACLBindingRule, ACLPolicy, ACLRole
from yurt.structs.commands import (
    AnyCommand,
    CreateACLBindingRule,
    CreateACLRole,
    DeleteACLAuthMethods,
    DeleteACLBindingRules,
    DeleteACLPolicies,
    DeleteACLRoles,
    UpdateACLBindingRule,
    UpdateACLRole,
    UpsertACLAuthMethod,
    UpsertACLPolicies,
)

T = TypeVar("T", bound=Value)

LONG_RULES: Final = 16 * 1024
"""The number of characters from which a policy is parsed in a thread."""


class AclPolicies:
    """Operations on policies, roles, methods and rules; each raises Invalid, NotFound or Conflict."""

    def __init__(self, replica: Replica, config: ServerConfig, *, root_keys: RootKeys, keyring: Keyring) -> None:
        self._replica = replica
        self._config = config
        self._root_keys = root_keys
        self._keyring = keyring

    async def put_policy(self, policy: ACLPolicy) -> int:
        """Store a policy; returns the index."""
        if len(policy.rules) > LONG_RULES:
            await self._replica.env.in_thread(check_policy, policy)
        else:
            check_policy(policy)
        return (await self._replica.propose(UpsertACLPolicies(policies=(_clean(policy),)))).index

    async def delete_policy(self, name: str) -> int:
        """Delete a policy; tokens and roles that name it lose its rights."""
        return (await self._replica.propose(DeleteACLPolicies(names=(name,)))).index

    async def put_role(self, role: ACLRole) -> tuple[ACLRole, int]:
        """Store a role; one without an id is new."""
        check_role(role)
        made = replace(_clean(role), id=role.id or self._replica.env.uuid())
        command = UpdateACLRole(role=made) if role.id else CreateACLRole(role=made)
        committed = await self._replica.propose(command)
        return committed.state.acl_roles[made.id], committed.index

    async def delete_role(self, role_id: str) -> int:
        """Delete a role."""
        return (await self._replica.propose(DeleteACLRoles(role_ids=(role_id,)))).index

    async def put_auth_method(self, method: ACLAuthMethod) -> tuple[ACLAuthMethod, int]:
        """Store a login method, its secrets sealed; missing fields come from the stored one."""
        # Certificates and ciphers take memory that servers without login methods save.
        from yurt.server.keys.login_config import check_method_keys
        from yurt.server.keys.method_secrets import with_stored_secrets

        check_method_keys(method)
        limits = self._config.acl
        least, most = seconds(limits.token_min_expiration_ttl_s), seconds(limits.token_max_expiration_ttl_s)

        async def decision(state: Snapshot) -> AnyCommand:
            stored = state.acl_auth_methods.get(method.name)
            merged = with_stored_secrets(self._keyring, _merged(method, stored), stored)
            check_auth_method(merged, min_ttl=least, max_ttl=most)
            basis = (expectation(state, "acl_auth_methods", method.name),)
            changed = replace(_clean(await self.sealed(merged)), modify_time=self._replica.env.now())
            return UpsertACLAuthMethod(method=changed, based_on=basis)

        committed = await self._replica.decide(decision)
        return committed.state.acl_auth_methods[method.name], committed.index

    async def sealed(self, method: ACLAuthMethod) -> ACLAuthMethod:
        """A method with its secrets sealed by the active root key of this region."""
        from yurt.server.keys.method_secrets import sealed_method, secrets_of

        # A cluster without a secret to seal needs no root key yet.
        key_id = (await self._root_keys.active()).key_id if any(secrets_of(method)) else ""
        return sealed_method(self._keyring, key_id, method)

    def opened(self, method: ACLAuthMethod) -> ACLAuthMethod:
        """A stored method with its secrets in the clear; raises Unavailable without its root key."""
        from yurt.server.keys.method_secrets import opened_method

        return opened_method(self._keyring, method)

    async def delete_auth_method(self, name: str) -> int:
        """Delete a login method."""
        return (await self._replica.propose(DeleteACLAuthMethods(names=(name,)))).index

    async def put_binding_rule(self, rule: ACLBindingRule) -> tuple[ACLBindingRule, int]:
        """Store a binding rule; one without an id is new, missing fields come from the stored one."""
        made = replace(_clean(rule), id=rule.id or self._replica.env.uuid())

        async def decision(state: Snapshot) -> AnyCommand:
            stored = state.acl_binding_rules.get(rule.id)
            merged = made if stored is None else _merged_rule(made, stored)
            check_binding_rule(merged)
            changed = replace(merged, modify_time=self._replica.env.now())
            basis = (expectation(state, "acl_binding_rules", made.id),)
            kind = UpdateACLBindingRule if rule.id else CreateACLBindingRule
            return kind(rule=changed, based_on=basis)

        committed = await self._replica.decide(decision)
        return committed.state.acl_binding_rules[made.id], committed.index

    async def delete_binding_rule(self, rule_id: str) -> int:
        """Delete a binding rule."""
        return (await self._replica.propose(DeleteACLBindingRules(rule_ids=(rule_id,)))).index


def _clean(row: T) -> T:
    """Indexes are set by the log."""
    return replace(row, create_index=0, modify_index=0)


def _merged(method: ACLAuthMethod, stored: ACLAuthMethod | None) -> ACLAuthMethod:
    """The method with missing fields from the stored one: all but `default`, and `config` as a whole."""
    from yurt.acl.login.templates import TOKEN_NAME_FORMAT

    if stored is None:
        return replace(method, token_name_format=method.token_name_format or TOKEN_NAME_FORMAT)
    return replace(
        method,
        type=method.type or stored.type,
        token_locality=method.token_locality or stored.token_locality,
        token_name_format=method.token_name_format or stored.token_name_format or TOKEN_NAME_FORMAT,
        max_token_ttl=method.max_token_ttl or stored.max_token_ttl,
        config=stored.config if method.config is None else method.config,
    )


def _merged_rule(rule: ACLBindingRule, stored: ACLBindingRule) -> ACLBindingRule:
    return replace(
        rule,
        auth_method=rule.auth_method or stored.auth_method,
        bind_type=rule.bind_type or stored.bind_type,
        bind_name=rule.bind_name or stored.bind_name,
    )
