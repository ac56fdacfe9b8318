"""The authority of an agent with access control: who may do what, by the newest state."""

from __future__ import annotations

from collections.abc import Callable

from yurt.access import Actor, Decision, Need, Scope
from yurt.acl.decisions import decide
from yurt.acl.resolver import Resolved, Resolver
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot


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

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` says yes in every scope."""
        return self.resolve(actor).rights.allows_everywhere(need)
