"""Commands for access control: tokens, policies, roles and login methods."""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.acl.login import (
    create_binding_rule,
    delete_auth_methods,
    delete_binding_rules,
    put_auth_method,
    update_binding_rule,
)
from yurt.fsm.acl.one_time import put_one_time, take_one_time
from yurt.fsm.acl.roles import create_role, delete_policies, delete_roles, put_policies, update_role
from yurt.fsm.acl.tokens import bootstrap, collect, create_login_token, create_token, delete_tokens, update_token
from yurt.fsm.edit import Edit
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import (
    AclCommand,
    BootstrapACL,
    CollectACL,
    CreateACLBindingRule,
    CreateACLLoginToken,
    CreateACLRole,
    CreateACLToken,
    DeleteACLAuthMethods,
    DeleteACLBindingRules,
    DeleteACLPolicies,
    DeleteACLRoles,
    DeleteACLTokens,
    EndSession,
    PutOneTimeToken,
    ReplicateACLAuthMethods,
    ReplicateACLBindingRules,
    ReplicateACLRoles,
    ReplicateACLTokens,
    TakeOneTimeToken,
    UpdateACLBindingRule,
    UpdateACLRole,
    UpdateACLToken,
    UpsertACLAuthMethod,
    UpsertACLPolicies,
)

TokenCommand = (
    BootstrapACL
    | CreateACLToken
    | CreateACLLoginToken
    | UpdateACLToken
    | DeleteACLTokens
    | CollectACL
    | PutOneTimeToken
    | TakeOneTimeToken
    | EndSession
)
ReplicaCommand = ReplicateACLRoles | ReplicateACLTokens | ReplicateACLAuthMethods | ReplicateACLBindingRules


def apply_acl(edit: Edit, command: AclCommand) -> Rejected | None:
    """Apply an access control command."""
    if isinstance(command, TokenCommand):
        return _apply_token(edit, command)
    if isinstance(command, ReplicaCommand):
        return _apply_replica(edit, command)
    match command:
        case UpsertACLPolicies():
            return put_policies(edit, command)
        case DeleteACLPolicies():
            return delete_policies(edit, command)
        case CreateACLRole():
            return create_role(edit, command)
        case UpdateACLRole():
            return update_role(edit, command)
        case DeleteACLRoles():
            return delete_roles(edit, command)
        case UpsertACLAuthMethod():
            return put_auth_method(edit, command)
        case DeleteACLAuthMethods():
            return delete_auth_methods(edit, command)
        case CreateACLBindingRule():
            return create_binding_rule(edit, command)
        case UpdateACLBindingRule():
            return update_binding_rule(edit, command)
        case DeleteACLBindingRules():
            return delete_binding_rules(edit, command)
        case _:
            assert_never(command)


def _apply_token(edit: Edit, command: TokenCommand) -> Rejected | None:
    match command:
        case BootstrapACL():
            return bootstrap(edit, command)
        case CreateACLToken():
            return create_token(edit, command)
        case CreateACLLoginToken():
            return create_login_token(edit, command)
        case UpdateACLToken():
            return update_token(edit, command)
        case DeleteACLTokens():
            return delete_tokens(edit, command)
        case CollectACL():
            return collect(edit, command)
        case PutOneTimeToken():
            return put_one_time(edit, command)
        case TakeOneTimeToken():
            return take_one_time(edit, command)
        case EndSession():
            # Imported late: few clusters have users who sign out.
            from yurt.fsm.acl.ended_sessions import end_session

            return end_session(edit, command)
        case _:
            assert_never(command)


def _apply_replica(edit: Edit, command: ReplicaCommand) -> Rejected | None:
    # Imported late: most clusters have one region.
    from yurt.fsm.acl import replication

    match command:
        case ReplicateACLRoles():
            return replication.replicate_roles(edit, command)
        case ReplicateACLTokens():
            return replication.replicate_tokens(edit, command)
        case ReplicateACLAuthMethods():
            return replication.replicate_methods(edit, command)
        case ReplicateACLBindingRules():
            return replication.replicate_rules(edit, command)
        case _:
            assert_never(command)
