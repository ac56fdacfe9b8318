"""The one place that decides whether an actor may do what a route needs.

An `Authority` answers a pure question: actor, need, scope. `AllowAll` says yes where access control is off;
`yurt.acl.AclAuthority` decides by tokens and policies. The scope is where an object
lies: a part that is None means "anywhere", which is how the dispatcher asks before a row is known: it lets a caller
through who may do the thing somewhere, and the view decides again about the row that it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from yurt.access.actor import EVERYBODY, Actor
from yurt.access.needs import ANONYMOUS, MANAGEMENT, Need, satisfied
from yurt.sdk.errors import PermissionDenied
from yurt.sdk.value import Value

DENIED = "Permission denied"


class Scope(NamedTuple):
    """Where the object of a request lies; None: anywhere, or not of that kind."""

    namespace: str | None = None
    node_pool: str | None = None
    variable: str | None = None
    host_volume: str | None = None


ANYWHERE = Scope()
"""No object is known yet."""


class Decision(Value):
    """Whether something is allowed, and why."""

    is_allowed: bool
    reason: str


Preparation = Callable[[], Callable[[], None]]
"""A function to run in a thread; it returns a second one, which stores the result on the event loop."""


class Authority(Protocol):
    """Decides about requests."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """What takes too long for the event loop and comes before a decision about the actor; None mostly."""
        ...

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor may do what the need says to objects in the scope."""
        ...

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """As `allows`, with the reason, which costs several times as much: for those who show it."""
        ...

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` says yes in every scope, so that lists need not look at their rows."""
        ...


class AllowAll:
    """Access control is off: everybody may do everything."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """Nothing."""
        return None

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Yes."""
        return True

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """Yes."""
        return ALLOWED

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Yes."""
        return True


class AllowNobody:
    """Nothing is known of tokens and policies here: only what needs no caller is allowed."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """Nothing."""
        return None

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether anybody may do it."""
        return satisfied(need, lambda _: False, has_row=True)

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """As `allows`."""
        return Decision(is_allowed=self.allows(actor, need, scope), reason="this agent knows no tokens")

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """As `allows`."""
        return self.allows(actor, need, ANYWHERE)


ALLOWED = Decision(is_allowed=True, reason="access control is off")
ALLOW_ALL = AllowAll()
ALLOW_NOBODY = AllowNobody()


class Access:
    """What one request may do: an actor, what its route needs, and who decides. Views and operations are bound to it.

    Decisions are kept while the request lasts, because a list asks about the same few namespaces a million times. Those
    about a variable are not: each is asked for once, and a list may have a hundred thousand.
    """

    __slots__ = ("_authority", "_kept", "actor", "need", "sees_all")

    def __init__(self, actor: Actor = EVERYBODY, need: Need = ANONYMOUS, authority: Authority = ALLOW_ALL) -> None:
        self.actor = actor
        self.need = need
        self._authority = authority
        self.renew()

    @property
    def is_unconditional(self) -> bool:
        """Access control is off: nothing that changes can take these rights away."""
        return self._authority is ALLOW_ALL

    def allows(self, scope: Scope) -> bool:
        """Whether the request may do what it is about in that scope."""
        if self.sees_all:
            return True
        if scope.variable is not None:
            return self._authority.allows(self.actor, self.need, scope)
        known = self._kept.get(scope)
        if known is None:
            known = self._kept[scope] = self._authority.allows(self.actor, self.need, scope)
        return known

    @property
    def is_management(self) -> bool:
        """Whether the caller showed a management token; nobody does while access control is off."""
        is_controlled = not isinstance(self._authority, AllowAll)
        return is_controlled and self._authority.allows(self.actor, MANAGEMENT, ANYWHERE)

    def narrowed(self, need: Need) -> Access:
        """The same caller where the request turns out to need something else than its route says."""
        return Access(self.actor, need, self._authority)

    def renew(self) -> None:
        """Forget earlier decisions: while the request waited, the rights of the caller may have changed."""
        self.sees_all = self._authority.allows_everywhere(self.actor, self.need)
        """Whether no row has to be looked at."""
        self._kept: dict[Scope, bool] = {}

    def require(self, scope: Scope) -> None:
        """Raises PermissionDenied where `allows` says no."""
        if not self.allows(scope):
            raise PermissionDenied(DENIED)
