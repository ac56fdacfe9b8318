"""Changes to policies, tokens, roles and login methods. All but one-time tokens need a management token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import ANYWHERE, Access
from yurt.server.resources.acl_policies import AclPolicies
from yurt.server.resources.acl_tokens import AclTokens, MadeOneTime, MadeToken
from yurt.structs.acl import ACLAuthMethod, ACLBindingRule, ACLPolicy, ACLRole, ACLToken

if TYPE_CHECKING:
    from yurt.server.keys.sessions import SealedSession, Session, Sessions


class AclTokenOperations:
    """Operations on tokens for one caller."""

    __slots__ = ("_access", "_tokens")

    def __init__(self, tokens: AclTokens, access: Access) -> None:
        self._tokens = tokens
        self._access = access

    async def bootstrap(self, secret: str) -> MadeToken:
        """Create the first management token, for the first caller; raises Conflict or Invalid."""
        return await self._tokens.bootstrap(secret)

    async def create(self, token: ACLToken) -> MadeToken:
        """Create a token; raises Invalid or Conflict."""
        self._access.require(ANYWHERE)
        return await self._tokens.create(token)

    async def put(self, token: ACLToken, secret: str, *, seen_index: int) -> MadeToken:
        """Change a token, or create it with these ids unless it was revoked after `seen_index`; raises Invalid."""
        self._access.require(ANYWHERE)
        return await self._tokens.put(token, secret, seen_index=seen_index)

    async def update(self, token: ACLToken) -> MadeToken:
        """Change a token's rights; raises Invalid."""
        self._access.require(ANYWHERE)
        return await self._tokens.update(token)

    async def delete(self, accessor_id: str) -> int:
        """Revoke a token; raises NotFound."""
        self._access.require(ANYWHERE)
        return await self._tokens.delete(accessor_id)

    async def make_one_time(self, token: ACLToken, secret: str) -> MadeOneTime:
        """Create a one-time token for the caller's own token; raises PermissionDenied."""
        return await self._tokens.make_one_time(token, secret)

    async def exchange_one_time(self, once: str) -> MadeToken:
        """The token of a one-time token, for the holder of its secret; raises PermissionDenied."""
        return await self._tokens.exchange_one_time(once)


class AclPolicyOperations:
    """Operations on policies, roles, login methods and binding rules for one caller, with the needs of their routes."""

    __slots__ = ("_access", "_policies")

    def __init__(self, policies: AclPolicies, access: Access) -> None:
        self._policies = policies
        self._access = access

    async def put_policy(self, policy: ACLPolicy) -> int:
        """Store a policy; raises Invalid."""
        self._access.require(ANYWHERE)
        return await self._policies.put_policy(policy)

    async def delete_policy(self, name: str) -> int:
        """Delete a policy; raises NotFound."""
        self._access.require(ANYWHERE)
        return await self._policies.delete_policy(name)

    async def put_role(self, role: ACLRole) -> tuple[ACLRole, int]:
        """Store a role; raises Invalid or Conflict."""
        self._access.require(ANYWHERE)
        return await self._policies.put_role(role)

    async def delete_role(self, role_id: str) -> int:
        """Delete a role; raises NotFound."""
        self._access.require(ANYWHERE)
        return await self._policies.delete_role(role_id)

    async def put_auth_method(self, method: ACLAuthMethod) -> tuple[ACLAuthMethod, int]:
        """Store a login method; raises Invalid."""
        self._access.require(ANYWHERE)
        return await self._policies.put_auth_method(method)

    def shared_auth_method(self, method: ACLAuthMethod) -> ACLAuthMethod:
        """A method with its secrets, for a region that seals them with its own key; raises Unavailable."""
        self._access.require(ANYWHERE)
        return self._policies.opened(method)

    async def delete_auth_method(self, name: str) -> int:
        """Delete a login method; raises NotFound."""
        self._access.require(ANYWHERE)
        return await self._policies.delete_auth_method(name)

    async def put_binding_rule(self, rule: ACLBindingRule) -> tuple[ACLBindingRule, int]:
        """Store a binding rule; raises Invalid."""
        self._access.require(ANYWHERE)
        return await self._policies.put_binding_rule(rule)

    async def delete_binding_rule(self, rule_id: str) -> int:
        """Delete a binding rule; raises NotFound."""
        self._access.require(ANYWHERE)
        return await self._policies.delete_binding_rule(rule_id)


class SessionOperations:
    """Browser sessions, for holders of a secret or a session."""

    __slots__ = ("_sessions",)

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def begin(self, secret_hash: str) -> SealedSession:
        """A session of the token with this hash, which the caller has looked up; raises Unavailable."""
        return await self._sessions.begin(secret_hash)

    async def opened(self, text: str) -> Session:
        """The session behind a text; raises Invalid when it is over or was not made here."""
        return await self._sessions.opened(text)

    async def renew(self, session: Session) -> SealedSession:
        """Extend a session."""
        return await self._sessions.renew(session)

    async def end(self, session: Session) -> None:
        """End a session that the caller has shown; raises Conflict and Unavailable."""
        await self._sessions.end(session)
