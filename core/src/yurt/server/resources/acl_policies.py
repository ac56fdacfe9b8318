"""Policies, roles, login methods and binding rules: validation, storage, deletion."""

from __future__ import annotations

from typing import Final, TypeVar

from yurt.acl.login.templates import TOKEN_NAME_FORMAT
from yurt.acl.validation import check_auth_method, check_binding_rule, check_policy, check_role
from yurt.fsm.basis import expectation
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, replace, seconds
from yurt.server.config import ServerConfig
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.structs.acl import REDACTED, ACLAuthMethod, ACLAuthMethodConfig, ACLBindingRule, ACLPolicy, ACLRole
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
"""Characters of a policy that is read beside the event loop."""


class AclPolicies:
    """Operations on policies, roles, methods and rules; each raises Invalid, NotFound or Conflict."""

    def __init__(self, replica: Replica, config: ServerConfig) -> None:
        self._replica = replica
        self._config = config

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
        """Store a login method; missing fields come from the stored one."""
        _check_public_keys(method)
        limits = self._config.acl
        least, most = seconds(limits.token_min_expiration_ttl_s), seconds(limits.token_max_expiration_ttl_s)

        async def decision(state: Snapshot) -> AnyCommand:
            merged = _merged(method, state.acl_auth_methods.get(method.name))
            check_auth_method(merged, min_ttl=least, max_ttl=most)
            basis = (expectation(state, "acl_auth_methods", method.name),)
            changed = replace(_clean(merged), modify_time=self._replica.env.now())
            return UpsertACLAuthMethod(method=changed, based_on=basis)

        committed = await self._replica.decide(decision)
        return committed.state.acl_auth_methods[method.name], committed.index

    async def delete_auth_method(self, name: str) -> int:
        """Delete a login method."""
        return (await self._replica.propose(DeleteACLAuthMethods(names=(name,)))).index

    async def put_binding_rule(self, rule: ACLBindingRule) -> tuple[ACLBindingRule, int]:
        """Store a binding rule; one without an id is new, missing fields come from the stored one."""
        made = replace(_clean(rule), id=rule.id or self._replica.env.uuid())

        async def decision(state: Snapshot) -> AnyCommand:
            known = state.acl_binding_rules.get(rule.id)
            merged = made if known is None else _merged_rule(made, known)
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


def _check_public_keys(method: ACLAuthMethod) -> None:
    """The keys of a method can check signatures; raises Invalid."""
    if method.config is None or not method.config.jwt_validation_pub_keys:
        return
    # Certificates take memory that servers without such methods save.
    from yurt.server.keys.login_keys import keys_of_pem

    try:
        keys_of_pem(method.config.jwt_validation_pub_keys)
    except Invalid as error:
        raise Invalid(f"auth method 0 invalid: invalid config: {error}") from None


def _clean(row: T) -> T:
    """Indexes are set by the log."""
    return replace(row, create_index=0, modify_index=0)


def _merged(method: ACLAuthMethod, known: ACLAuthMethod | None) -> ACLAuthMethod:
    """The method with missing fields from the stored one: all but `default`, and `config` as a whole."""
    if known is None:
        return replace(method, token_name_format=method.token_name_format or TOKEN_NAME_FORMAT)
    return replace(
        method,
        type=method.type or known.type,
        token_locality=method.token_locality or known.token_locality,
        token_name_format=method.token_name_format or known.token_name_format or TOKEN_NAME_FORMAT,
        max_token_ttl=method.max_token_ttl or known.max_token_ttl,
        config=known.config if method.config is None else _with_secrets(method.config, known.config),
    )


def _with_secrets(config: ACLAuthMethodConfig, known: ACLAuthMethodConfig | None) -> ACLAuthMethodConfig:
    """The configuration with the stored secrets in place of masked ones."""
    if known is None:
        return config
    if config.oidc_client_secret == REDACTED:
        config = replace(config, oidc_client_secret=known.oidc_client_secret)
    ours, theirs = config.oidc_client_assertion, known.oidc_client_assertion
    if ours is None or theirs is None or ours.private_key is None or theirs.private_key is None:
        return config
    if ours.private_key.pem_key == REDACTED:
        key = replace(ours.private_key, pem_key=theirs.private_key.pem_key)
        config = replace(config, oidc_client_assertion=replace(ours, private_key=key))
    return config


def _merged_rule(rule: ACLBindingRule, known: ACLBindingRule) -> ACLBindingRule:
    return replace(
        rule,
        auth_method=rule.auth_method or known.auth_method,
        bind_type=rule.bind_type or known.bind_type,
        bind_name=rule.bind_name or known.bind_name,
    )
