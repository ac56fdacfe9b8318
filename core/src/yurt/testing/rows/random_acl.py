"""Random commands on the tables of access control, over few names so that they conflict often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing import factories

T = TypeVar("T")

IDS = tuple(factories.number_id(number, kind=7) for number in range(3))
NAMES = ("ops", "dev", "")
HOUR = 3_600_000_000_000


class AclMaker:
    """Generates random commands."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = factories.NOW
        self._makers: tuple[Callable[[Snapshot], c.AclCommand], ...] = (
            self._bootstrap, self._policies, self._policies, self._delete_policies, self._create_token,
            self._create_token, self._create_token, self._login_token, self._update_token, self._delete_tokens,
            self._collect, self._one_time, self._one_time, self._one_time, self._take, self._create_role,
            self._create_role, self._update_role, self._delete_roles, self._method, self._method, self._delete_methods,
            self._create_rule, self._create_rule, self._update_rule, self._delete_rules,
            self._replicate_roles, self._replicate_tokens, self._replicate_tokens, self._replicate_methods,
            self._replicate_rules, self._end_session,
        )  # fmt: skip

    def command(self, state: Snapshot, now: UnixNano) -> c.AclCommand:
        """A random command for this state."""
        self._now = now
        return self._pick(self._makers)(state)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def _known(self, state: Snapshot, table: str, otherwise: str) -> str:
        keys = sorted(state.table(table).keys())
        return self._pick(keys) if keys and self._random.randrange(4) else otherwise

    def _token(self, state: Snapshot, *, type: str = acl.CLIENT) -> acl.ACLToken:
        roles = sorted(state.acl_roles.keys())
        links = (acl.ACLTokenRoleLink(id=self._pick(roles or IDS)),) if self._random.randrange(4) == 0 else ()
        return acl.ACLToken(
            accessor_id=self._pick(IDS),
            secret_hash=acl.hash_of_secret(self._pick(IDS)),
            type=type,
            policies=(self._pick(NAMES),),
            roles=links,
            is_global=self._random.randrange(4) == 0,
            create_time=self._now,
            expiration_time=self._pick((0, 0, self._now + HOUR)),
        )

    def _bootstrap(self, state: Snapshot) -> c.BootstrapACL:
        known = state.acl_bootstrap.get("")
        reset = self._pick((None, 1, known.modify_index)) if known is not None else None
        return c.BootstrapACL(token=self._token(state, type=acl.MANAGEMENT), reset_index=reset)

    def _policies(self, state: Snapshot) -> c.UpsertACLPolicies:
        attached = self._pick((None, acl.JobACL(namespace="default", job_id="web")))
        policy = acl.ACLPolicy(name=self._pick(NAMES), rules=self._pick(("", "node {}")), job_acl=attached)
        return c.UpsertACLPolicies(policies=(policy,))

    def _delete_policies(self, state: Snapshot) -> c.DeleteACLPolicies:
        return c.DeleteACLPolicies(names=(self._known(state, "acl_policies", "gone"),))

    def _create_token(self, state: Snapshot) -> c.CreateACLToken:
        return c.CreateACLToken(token=self._token(state))

    def _login_token(self, state: Snapshot) -> c.CreateACLLoginToken:
        return c.CreateACLLoginToken(token=self._token(state))

    def _update_token(self, state: Snapshot) -> c.UpdateACLToken:
        return c.UpdateACLToken(token=self._token(state))

    def _delete_tokens(self, state: Snapshot) -> c.DeleteACLTokens:
        return c.DeleteACLTokens(accessor_ids=(self._known(state, "acl_tokens", IDS[0]),))

    def _collect(self, state: Snapshot) -> c.AclCommand:
        if self._random.randrange(4) == 0:
            return c.CollectACL(now=self._now, created_before=self._now, based_on=(_unknown(),))
        return c.CollectACL(
            now=self._now,
            created_before=UnixNano(self._now - HOUR),
            accessor_ids=tuple(sorted(state.acl_tokens.keys())),
            one_time_hashes=tuple(sorted(state.one_time_tokens.keys())),
            revoked_ids=tuple(sorted(state.acl_revocations.keys())),
            session_ids=tuple(sorted(state.ended_sessions.keys())),
        )

    def _end_session(self, state: Snapshot) -> c.EndSession:
        forget_at = self._pick((self._now - HOUR, self._now + HOUR))
        session = acl.EndedSession(id=self._pick(IDS), secret_hash=self._pick(("hash", "")), forget_at=forget_at)
        return c.EndSession(session=session)

    def _one_time(self, state: Snapshot) -> c.PutOneTimeToken:
        token = acl.OneTimeToken(
            secret_hash=acl.hash_of_secret(self._pick(IDS)),
            accessor_id=self._known(state, "acl_tokens", IDS[0]),
            sealed_secret=b"sealed",
            expires_at=self._now + HOUR,
        )
        return c.PutOneTimeToken(token=token, now=self._now)

    def _take(self, state: Snapshot) -> c.TakeOneTimeToken:
        return c.TakeOneTimeToken(secret_hash=self._known(state, "one_time_tokens", "gone"), now=self._now)

    def _role(self, state: Snapshot) -> acl.ACLRole:
        link = acl.ACLRolePolicyLink(name=self._known(state, "acl_policies", "gone"))
        return acl.ACLRole(id=self._pick(IDS), name=self._pick(NAMES), policies=(link,))

    def _create_role(self, state: Snapshot) -> c.CreateACLRole:
        return c.CreateACLRole(role=self._role(state))

    def _update_role(self, state: Snapshot) -> c.UpdateACLRole:
        return c.UpdateACLRole(role=self._role(state))

    def _delete_roles(self, state: Snapshot) -> c.DeleteACLRoles:
        return c.DeleteACLRoles(role_ids=(self._known(state, "acl_roles", "gone"),))

    def _method(self, state: Snapshot) -> c.UpsertACLAuthMethod:
        method = acl.ACLAuthMethod(name=self._pick(NAMES), type="JWT", default=self._random.randrange(3) == 0)
        if self._random.randrange(2):
            method = replace(method, key_id=self._known(state, "root_keys", "gone"), sealed_secrets=b"sealed")
        return c.UpsertACLAuthMethod(method=method)

    def _delete_methods(self, state: Snapshot) -> c.DeleteACLAuthMethods:
        return c.DeleteACLAuthMethods(names=(self._known(state, "acl_auth_methods", "gone"),))

    def _rule(self, state: Snapshot) -> acl.ACLBindingRule:
        known = sorted(state.acl_binding_rules.values(), key=lambda rule: rule.id)
        if known and self._random.randrange(2):
            return self._pick(known)
        method = self._known(state, "acl_auth_methods", "gone")
        return acl.ACLBindingRule(id=self._pick(IDS), auth_method=method, bind_type="policy", bind_name="ops")

    def _create_rule(self, state: Snapshot) -> c.CreateACLBindingRule:
        return c.CreateACLBindingRule(rule=self._rule(state))

    def _update_rule(self, state: Snapshot) -> c.UpdateACLBindingRule:
        return c.UpdateACLBindingRule(rule=self._rule(state))

    def _delete_rules(self, state: Snapshot) -> c.DeleteACLBindingRules:
        return c.DeleteACLBindingRules(rule_ids=(self._known(state, "acl_binding_rules", "gone"),))

    def _replicate_roles(self, state: Snapshot) -> c.ReplicateACLRoles:
        return c.ReplicateACLRoles(roles=(self._role(state),))

    def _replicate_tokens(self, state: Snapshot) -> c.ReplicateACLTokens:
        return c.ReplicateACLTokens(tokens=(replace(self._token(state), is_global=True),))

    def _replicate_methods(self, state: Snapshot) -> c.ReplicateACLAuthMethods:
        return c.ReplicateACLAuthMethods(methods=(acl.ACLAuthMethod(name=self._pick(NAMES), type="OIDC"),))

    def _replicate_rules(self, state: Snapshot) -> c.ReplicateACLBindingRules:
        return c.ReplicateACLBindingRules(rules=(self._rule(state),))


def _unknown() -> c.Expectation:
    return c.Expectation(table="acl_tokens", key="gone", index=1)
