"""The authority of an agent with access control: who may do what, by the newest state."""

from __future__ import annotations

from collections.abc import Callable

from yurt.access import Actor, Decision, Identity, Need, Scope
from yurt.acl.assignments import token_of
from yurt.acl.decisions import decide
from yurt.acl.identities import identity_of
from yurt.acl.resolver import Resolved, Resolver
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import hash_of_secret


class AclAuthority:
    """Decides by tokens and policies; looks them up for each decision, so that a revocation counts at once."""

    def __init__(self, state: Callable[[], Snapshot], now: Callable[[], UnixNano]) -> None:
        self._state = state
        self._now = now
        self._resolver = Resolver()

    def resolve(self, actor: Actor) -> Resolved:
        """What the actor may do."""
        return self._resolver.resolve(self._state(), actor.caller, self._now())

    def preparation(self, actor: Actor) -> Callable[[], Callable[[], None]] | None:
        """Reading long policies, for a thread."""
        return self._resolver.preparation(self._state(), actor.caller)

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor may do what the need says to objects in the scope."""
        return self.resolve(actor).rights.allows(need, scope)

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """Whether the actor may do what the need says to objects in the scope, and by which rule."""
        resolved = self.resolve(actor)
        decision = decide(resolved.rights, need, scope)
        if resolved.problem and not decision.is_allowed:
            return Decision(is_allowed=False, reason=resolved.problem)
        return decision

    def identify(self, actor: Actor) -> Identity:
        """Who the actor is: the token, workload or node that was shown, also where it gives no rights any more."""
        return identity_of(self._state(), actor.caller, self.resolve(actor))

    def is_secret(self, text: str) -> bool:
        """Whether the text is the secret of a stored token, an expired one included, or of a node."""
        state, secret_hash = self._state(), hash_of_secret(text)
        is_node = any(True for _ in state.nodes.where("secret", secret_hash))
        return is_node or token_of(state, secret_hash) is not None

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` says yes in every scope."""
        return self.resolve(actor).rights.allows_everywhere(need)
