"""The authority of an agent with access control: decides about callers by the newest state."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from operator import is_
from typing import Final

from yurt.access import Actor, Caller, Decision, Identity, Need, Scope
from yurt.access.needs import satisfied
from yurt.acl.assignments import token_of
from yurt.acl.decisions import decide
from yurt.acl.identities import identity_of
from yurt.acl.resolver import Resolved, Resolver
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import hash_of_secret

GRANTED_MAX: Final = 16_384
"""Decisions that are remembered; then all are forgotten."""


class AclAuthority:
    """Decides by tokens and policies; looks them up for each decision, so that a revocation applies at once."""

    def __init__(
        self,
        state: Callable[[], Snapshot],
        now: Callable[[], UnixNano],
        *,
        state_age_s: Callable[[], float] = lambda: 0.0,
        age_max_s: float = math.inf,
    ) -> None:
        """`state_age_s` says how long ago the state was known to be the newest; above `age_max_s` nothing is decided
        by it, since it may lack a revocation: `allows`, `decide` and `allows_everywhere` raise Unavailable.
        """
        self._state = state
        self._now = now
        self._state_age_s = state_age_s
        self._age_max_s = age_max_s
        self._resolver = Resolver()
        self._granted: dict[tuple[int, int, Scope], tuple[Caller, Need]] = {}
        """What tokens without an expiry were allowed. The key has the `id()` of caller and need; the value keeps both
        alive, so that no other object gets their id.
        """
        self._granted_by: tuple[object, ...] = ()
        """The tables from which it follows."""
        self._granted_in: Snapshot | None = None
        """The state that has these tables."""
        self._last: tuple[Snapshot, Caller, Resolved] | None = None
        """The last answer that time does not end: a request asks a few times in a row about the same caller."""

    def resolve(self, actor: Actor) -> Resolved:
        """The actor's rights."""
        return self._lasting(actor) or self._resolver.resolve(self._state(), actor.caller, self._now())

    def _lasting(self, actor: Actor) -> Resolved | None:
        """As `resolve`, if the result holds for the newest state and no expiry ends it."""
        state, last = self._state(), self._last
        if last is not None and last[0] is state and last[1] is actor.caller:
            return last[2]
        found = self._resolver.lasting(state, actor.caller)
        if found is not None:
            self._last = (state, actor.caller, found)
        return found

    def preparation(self, actor: Actor) -> Callable[[], Callable[[], None]] | None:
        """Reading long policies, for a thread."""
        if self._lasting(actor) is not None:
            return None
        return self._resolver.preparation(self._state(), actor.caller)

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor has the need's rights on objects in the scope."""
        if self._state_age_s() > self._age_max_s:
            self._need_fresh_state(need)
        lasting = self._lasting(actor)
        if lasting is None:
            return self.resolve(actor).rights.allows(need, scope)
        is_allowed = lasting.rights.allows(need, scope)
        if is_allowed and scope.variable is None:
            self._keep_granted(actor.caller, need, scope)
        return is_allowed

    def has_allowed(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether `allows` was true for the same input before, with unchanged tokens, roles and policies."""
        state = self._state()
        if state is not self._granted_in:
            self._follow_tables(state)
        return (id(actor.caller), id(need), scope) in self._granted and self._state_age_s() <= self._age_max_s

    def _keep_granted(self, caller: Caller, need: Need, scope: Scope) -> None:
        self._follow_tables(self._state())
        if len(self._granted) >= GRANTED_MAX:
            self._granted.clear()
        self._granted[id(caller), id(need), scope] = (caller, need)

    def _follow_tables(self, state: Snapshot) -> None:
        """Forget all decisions once a token, a role or a policy has changed."""
        tables = (state.acl_tokens, state.acl_roles, state.acl_policies)
        if len(self._granted_by) != len(tables) or not all(map(is_, tables, self._granted_by)):
            self._granted.clear()
            self._granted_by = tables
        self._granted_in = state

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """Whether the actor has the need's rights on objects in the scope, and by which rule."""
        self._need_fresh_state(need)
        resolved = self.resolve(actor)
        decision = decide(resolved.rights, need, scope)
        if resolved.problem and not decision.is_allowed:
            return Decision(is_allowed=False, reason=resolved.problem)
        return decision

    def identify(self, actor: Actor) -> Identity:
        """The actor's token, workload or node, even when it no longer has rights."""
        return identity_of(self._state(), actor.caller, self.resolve(actor))

    def is_secret(self, text: str) -> bool:
        """Whether the text is the secret of a stored token, an expired one included, or of a node."""
        state, secret_hash = self._state(), hash_of_secret(text)
        is_node = any(True for _ in state.nodes.where("secret", secret_hash))
        return is_node or token_of(state, secret_hash) is not None

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` is true in every scope."""
        if self._state_age_s() > self._age_max_s:
            self._need_fresh_state(need)
        return self.resolve(actor).rights.allows_everywhere(need)

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str] | None:
        """The namespaces among `names` in which `allows` is true."""
        if self._state_age_s() > self._age_max_s:
            self._need_fresh_state(need)
        return self.resolve(actor).rights.namespaces_allowed(need, names)

    def standing(self, actor: Actor) -> Hashable | None:
        """The compiled policies and how far the caller is known; the own rights of a
        workload or a node are its alone."""
        rights = self.resolve(actor).rights
        is_own = rights.workload is not None or rights.node_id
        return rights if is_own else (rights.kind, rights.policies)

    def _need_fresh_state(self, need: Need) -> None:
        """Raises Unavailable where the state is too old to decide; what anybody may do needs no state."""
        age_s = self._state_age_s()
        if age_s <= self._age_max_s or satisfied(need, lambda _: False, has_row=True):
            return
        seen = "has not seen the leader's state yet" if age_s == math.inf else f"is {age_s:.0f} s behind the leader"
        raise Unavailable(
            f"this server {seen}, and decides about tokens for {self._age_max_s:.0f} s only (acl.token_ttl): "
            "ask another server, or without ?stale"
        )
