"""Commands on policies, tokens, roles and login methods."""

from __future__ import annotations

from yurt.sdk.value import UnixNano
from yurt.structs.acl import ACLAuthMethod, ACLBindingRule, ACLPolicy, ACLRole, ACLToken, EndedSession, OneTimeToken
from yurt.structs.commands.base import Command, EventType


class BootstrapACL(Command, tag=True):
    """Store the first management token; a repeated bootstrap must name the index of the last one as `reset_index`."""

    event_type = EventType("ACLTokenUpserted")

    token: ACLToken
    reset_index: int | None = None


class UpsertACLPolicies(Command, tag=True):
    """Create or change policies."""

    event_type = EventType("ACLPolicyUpserted")

    policies: tuple[ACLPolicy, ...]


class DeleteACLPolicies(Command, tag=True):
    """Delete policies; tokens and roles keep the deleted names."""

    event_type = EventType("ACLPolicyDeleted", publishes_deletion=True)

    names: tuple[str, ...]


class CreateACLToken(Command, tag=True):
    """Store a token under a new accessor id."""

    event_type = EventType("ACLTokenUpserted")

    token: ACLToken


class CreateACLLoginToken(Command, tag=True):
    """Store the token of a login under ids that no token, not even a revoked one, ever had: a login is used once."""

    event_type = EventType("ACLTokenUpserted")

    token: ACLToken


class UpdateACLToken(Command, tag=True):
    """Change name, type, policies and roles of a token, but not its secret, times or scope."""

    event_type = EventType("ACLTokenUpserted")

    token: ACLToken


class DeleteACLTokens(Command, tag=True):
    """Revoke tokens, all of which must exist."""

    event_type = EventType("ACLTokenDeleted", publishes_deletion=True)

    accessor_ids: tuple[str, ...]


class CollectACL(Command, tag=True):
    """Garbage-collect expired tokens, one-time tokens, revocations and ended sessions."""

    event_type = EventType("ACLTokenDeleted", publishes_deletion=True)

    now: UnixNano
    created_before: UnixNano
    accessor_ids: tuple[str, ...] = ()
    one_time_hashes: tuple[str, ...] = ()
    revoked_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()


class PutOneTimeToken(Command, tag=True):
    """Store a one-time token, replacing an earlier one of the same accessor."""

    token: OneTimeToken
    now: UnixNano


class TakeOneTimeToken(Command, tag=True):
    """Use a one-time token; of several attempts, one succeeds."""

    secret_hash: str
    now: UnixNano


class EndSession(Command, tag=True):
    """End a browser session."""

    session: EndedSession


class CreateACLRole(Command, tag=True):
    """Store a role under a new id and a new name."""

    event_type = EventType("ACLRoleUpserted")

    role: ACLRole


class UpdateACLRole(Command, tag=True):
    """Change a role."""

    event_type = EventType("ACLRoleUpserted")

    role: ACLRole


class DeleteACLRoles(Command, tag=True):
    """Delete roles, and remove them from tokens."""

    event_type = EventType("ACLRoleDeleted", publishes_deletion=True)

    role_ids: tuple[str, ...]


class UpsertACLAuthMethod(Command, tag=True):
    """Create or change a login method; at most one is the default."""

    event_type = EventType("ACLAuthMethodUpserted")

    method: ACLAuthMethod


class DeleteACLAuthMethods(Command, tag=True):
    """Delete login methods; their binding rules remain."""

    event_type = EventType("ACLAuthMethodDeleted", publishes_deletion=True)

    names: tuple[str, ...]


class CreateACLBindingRule(Command, tag=True):
    """Store a binding rule under a new id; its method must exist."""

    event_type = EventType("ACLBindingRuleUpserted")

    rule: ACLBindingRule


class UpdateACLBindingRule(Command, tag=True):
    """Change a binding rule, but not its method."""

    event_type = EventType("ACLBindingRuleUpserted")

    rule: ACLBindingRule


class DeleteACLBindingRules(Command, tag=True):
    """Delete binding rules."""

    event_type = EventType("ACLBindingRuleDeleted", publishes_deletion=True)

    rule_ids: tuple[str, ...]


class ReplicateACLRoles(Command, tag=True):
    """Store roles of the authoritative region unchanged, whether or not their policies exist here."""

    event_type = EventType("ACLRoleUpserted")

    roles: tuple[ACLRole, ...]


class ReplicateACLTokens(Command, tag=True):
    """Store global tokens of the authoritative region unchanged.

    A token that was revoked here, and one whose accessor id or secret a local token has, is left out.
    """

    event_type = EventType("ACLTokenUpserted")

    tokens: tuple[ACLToken, ...]


class ReplicateACLAuthMethods(Command, tag=True):
    """Store login methods of the authoritative region unchanged."""

    event_type = EventType("ACLAuthMethodUpserted")

    methods: tuple[ACLAuthMethod, ...]


class ReplicateACLBindingRules(Command, tag=True):
    """Store binding rules of the authoritative region unchanged, whether or not their methods exist here."""

    event_type = EventType("ACLBindingRuleUpserted")

    rules: tuple[ACLBindingRule, ...]


AclCommand = (
    BootstrapACL
    | UpsertACLPolicies
    | DeleteACLPolicies
    | CreateACLToken
    | CreateACLLoginToken
    | UpdateACLToken
    | DeleteACLTokens
    | CollectACL
    | PutOneTimeToken
    | TakeOneTimeToken
    | EndSession
    | CreateACLRole
    | UpdateACLRole
    | DeleteACLRoles
    | UpsertACLAuthMethod
    | DeleteACLAuthMethods
    | CreateACLBindingRule
    | UpdateACLBindingRule
    | DeleteACLBindingRules
    | ReplicateACLRoles
    | ReplicateACLTokens
    | ReplicateACLAuthMethods
    | ReplicateACLBindingRules
)
