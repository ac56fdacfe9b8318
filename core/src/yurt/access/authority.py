"""Decides whether an actor satisfies the need of a route; nothing else decides it.

An `Authority` answers a pure question: actor, need, scope. `AllowAll` says yes where access control is off;
`yurt.acl.AclAuthority` decides by tokens and policies. The scope is where an object
lies: a part that is None means "anywhere", which is how the dispatcher asks before a row is known: it lets a caller
through who may do the thing somewhere, and the view decides again about the row that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, Protocol

import msgspec

from yurt.access.actor import EVERYBODY, Actor, NoToken
from yurt.access.needs import ANONYMOUS, MANAGEMENT, NODE_READ, EachRow, Need, satisfied
from yurt.sdk.errors import DENIED, PermissionDenied
from yurt.sdk.value import Value

DECISIONS_MAX: Final = 32
"""Decisions of one request that are kept for its record; further ones are only counted."""
_REST: Final = (None, None, None, None)
"""The parts of a scope behind the namespace, where it has only that."""


class Scope(NamedTuple):
    """The location of a request's object; None: anywhere, or not of that kind."""

    namespace: str | None = None
    node_pool: str | None = None
    variable: str | None = None
    host_volume: str | None = None
    node: str | None = None


ANYWHERE = Scope()
"""The scope before an object is known."""


class DecidingRule(Value):
    """One place of a policy that a decision follows from."""

    policy: str
    line: int
    column: int
    text: str
    """The rule in the words of the policy language."""


class Decision(Value):
    """Whether something is allowed, and why."""

    is_allowed: bool
    reason: str
    rules: tuple[DecidingRule, ...] = ()
    """The rules that the reason names."""


class Identity(Value):
    """The caller's identity in words, for people and records; it decides nothing."""

    resolved_by: str
    """What the caller showed, or why nothing was looked at: `token`, `workload identity`, `access control is off`."""
    accessor_id: str = ""
    name: str = ""
    type: str = ""
    """`client` or `management` for a token."""
    is_global: bool = False
    policies: tuple[str, ...] = ()
    """The policies that its rights follow from."""
    problem: str = ""
    """Why the caller has no rights, or fewer than its policies' names suggest."""


Namespaces = str | frozenset[str] | None
"""Where the rows of a list may lie: in one namespace, or in some; None where more than the namespace of a row decides
who sees it.
"""
Preparation = Callable[[], Callable[[], None]]
"""A function to run in a thread; it returns a second one, which stores the result on the event loop."""


class Recalled(Protocol):
    """Earlier answers about one caller and one need; they hold until the event loop turns, and after that where `holds`
    says so."""

    everywhere: bool | None
    """Whether the need is satisfied in every scope; None: not known."""
    names: frozenset[str] | None
    """The namespaces of the last question, and ..."""
    allowed: frozenset[str]
    """... those of them in which the need is satisfied."""

    def holds(self) -> bool:
        """Whether nothing that the answers depend on has changed since."""
        ...


class _AllAllowed:
    """The answers where access control is off."""

    everywhere: bool | None = True
    names: frozenset[str] | None = None
    allowed = frozenset[str]()

    def holds(self) -> bool:
        """Yes."""
        return True


class Permissions(Protocol):
    """Answers a request's questions about its rights."""

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor has the need's rights on objects in the scope."""
        ...

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` is true in every scope, so that lists need not check their rows."""
        ...

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str] | None:
        """The namespaces among `names` in which `allows` is true; None where the authority cannot list them.

        It costs little when it was asked about the same names before.
        """
        ...

    def standing(self, actor: Actor) -> Hashable | None:
        """What all answers about the actor follow from now: the same value for actors with the same rights.

        None where that is unknown, so that nothing is shared.
        """
        ...

    def fixed(self, actor: Actor, need: Need) -> Permissions:
        """Permissions by the rights that the actor has now, which a thread may ask.

        Raises Unavailable where nothing can be decided about the need now.
        """
        ...


class Authority(Permissions, Protocol):
    """Decides about requests. Only the thread of the event loop may ask it; a thread gets `fixed`."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """Work that is too slow for the event loop and precedes a decision about the actor; usually None."""
        ...

    def recall(self, actor: Actor, need: Need, scope: Scope) -> Recalled | None:
        """Earlier answers, if `allows` was true for the same input and nothing that it depends on has changed since.

        They hold until the event loop turns: a caller never keeps them over an `await`. To recall them costs a part of
        the decision, and needs no `preparation`. None says nothing.
        """
        ...

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """As `allows`, with the reason, which costs several times as much: for display."""
        ...

    def identify(self, actor: Actor) -> Identity:
        """The actor's identity, for records."""
        ...

    def is_secret(self, text: str) -> bool:
        """Whether a text is the secret of a stored token or node, so that no record may contain it."""
        ...


class AllowAll:
    """Access control is off: everybody may do everything."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """Nothing."""
        return None

    def recall(self, actor: Actor, need: Need, scope: Scope) -> Recalled | None:
        """The answers that allow everything everywhere."""
        return ALL_ALLOWED

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Yes."""
        return True

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """Yes."""
        return ALLOWED

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Yes."""
        return True

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str] | None:
        """All."""
        return names

    def standing(self, actor: Actor) -> Hashable | None:
        """Unknown: everyone sees everything."""
        return None

    def fixed(self, actor: Actor, need: Need) -> AllowAll:
        """Itself: it stores nothing."""
        return self

    def identify(self, actor: Actor) -> Identity:
        """Anonymous: tokens are not read."""
        return Identity(resolved_by="access control is off")

    def is_secret(self, text: str) -> bool:
        """Always false: without access control no token is stored."""
        return False


class AllowNobody:
    """Without tokens and policies, only what needs no caller is allowed."""

    def preparation(self, actor: Actor) -> Preparation | None:
        """Nothing."""
        return None

    def recall(self, actor: Actor, need: Need, scope: Scope) -> Recalled | None:
        """None: nothing is cached."""
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

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str] | None:
        """Unknown."""
        return None

    def standing(self, actor: Actor) -> Hashable | None:
        """Unknown."""
        return None

    def fixed(self, actor: Actor, need: Need) -> AllowNobody:
        """Itself: it stores nothing."""
        return self

    def identify(self, actor: Actor) -> Identity:
        """The shown credential, unresolved."""
        shown = "no token" if isinstance(actor.caller, NoToken) else "token"
        return Identity(resolved_by=shown, problem="this agent knows no tokens")

    def is_secret(self, text: str) -> bool:
        """Unknown here."""
        return False


ALLOWED = Decision(is_allowed=True, reason="access control is off")
ALL_ALLOWED: Final = _AllAllowed()
ALLOW_ALL = AllowAll()
ALLOW_NOBODY = AllowNobody()


class MadeDecision(NamedTuple):
    """One decision: the need, its scope and whether it was allowed."""

    need: Need
    scope: Scope
    is_allowed: bool


class ObjectName(msgspec.Struct, frozen=True):
    """The object that a request is about: its kind, as `job` or `acl/token`, and its name or id."""

    kind: str = ""
    id: str = ""


class Trace:
    """The decisions of one request in order, and its object, for the audit record.

    It keeps a few: a list decides about each of its rows, and its record need not be as long as the list.
    """

    __slots__ = ("decisions", "object", "omitted")

    def __init__(self) -> None:
        self.decisions: list[MadeDecision] = []
        self.omitted = 0
        """Decisions beyond DECISIONS_MAX."""
        self.object = ObjectName()

    def add(self, need: Need, scope: Scope, *, is_allowed: bool) -> None:
        """Record a decision, unless it is recorded already."""
        if len(self.decisions) >= DECISIONS_MAX:
            self.omitted += 1
            return
        made = MadeDecision(need, scope, is_allowed)
        if made not in self.decisions:
            self.decisions.append(made)


class Access:
    """The rights of one request: its actor, its route's need, and the authority. Views and operations are bound to it.

    Decisions are kept while the request lasts, because a list asks about the same few namespaces a million times. Those
    about a variable are not: each is asked for once, and a list may have a hundred thousand.
    """

    __slots__ = ("_authority", "_kept", "_namespaces", "_recalled", "_sees_all", "_trace", "actor", "need")

    def __init__(
        self,
        actor: Actor = EVERYBODY,
        need: Need = ANONYMOUS,
        authority: Permissions = ALLOW_ALL,
        trace: Trace | None = None,
    ) -> None:
        self.actor = actor
        self.need = need
        self._authority = authority
        self._trace = trace
        """Where decisions are noted for a record of the request."""
        self._sees_all: bool | None = None
        self._recalled: Recalled | None = None
        self.renew()

    @property
    def is_unconditional(self) -> bool:
        """Whether access control is off, so that no change can remove these rights."""
        return self._authority is ALLOW_ALL

    def allows(self, scope: Scope) -> bool:
        """Whether the request's need is satisfied in that scope."""
        cached = self._kept.get(scope)
        if cached is None:
            cached = self._noted(scope, self._sees_all or self._authority.allows(self.actor, self.need, scope))
            if scope.variable is None:
                self._kept[scope] = cached
        return cached

    def keep(self, scope: Scope) -> None:
        """Record that the request's need is satisfied in that scope, as the authority knows from another request."""
        self._kept[scope] = self._noted(scope, True)
        if scope.namespace is not None and scope[1:] == _REST:
            self._namespaces[scope.namespace] = True

    def begin_step(self, recalled: Recalled) -> None:
        """Use earlier answers that hold now, until `end_step`: for work in which the event loop does nothing else.

        The answers are recalled right before, after the last `await`.
        """
        self._recalled = recalled
        self._sees_all = recalled.everywhere

    def end_step(self) -> None:
        """End the step, because the request waits: later answers are computed again."""
        self._recalled = self._sees_all = None

    def allows_namespace(self, namespace: str) -> bool:
        """`allows` for a scope with only a namespace: for rows, which a list checks one by one."""
        cached = self._namespaces.get(namespace)
        if cached is None:
            cached = self._namespaces[namespace] = self.allows(Scope(namespace=namespace))
        return cached

    @property
    def sees_all(self) -> bool:
        """Whether no row has to be checked; computed at most once until the rights are renewed."""
        cached = self._sees_all
        if cached is None:
            cached = self._sees_all = self._authority.allows_everywhere(self.actor, self.need)
        return cached

    @property
    def sees_some(self) -> bool:
        """Whether the need is satisfied in some scope; if not, no row of a list has to be checked."""
        need = self.need.need if isinstance(self.need, EachRow) else self.need
        return self.sees_all or self._authority.allows(self.actor, need, ANYWHERE)

    def visibility(self, within: Namespaces = None) -> Hashable | None:
        """A key for the rows that the request sees: requests with equal keys see the same rows.

        `within` names the namespaces of the rows where the namespace alone decides who sees a row. The key is then the
        allowed ones among them, so callers with different policies share an answer. Otherwise the key is all rights of
        the caller.
        None where it is unknown, or where each decision about a row is recorded: such an answer is shared with nobody.
        """
        cached = self._sees_all
        if self.sees_all if cached is None else cached:
            return True
        if self._trace is not None:
            return None
        match within:
            case None:
                standing = self._authority.standing(self.actor)
                return None if standing is None else (self.need, standing)
            case str():
                return self.allows_namespace(within)
            case _:
                recalled = self._recalled
                if recalled is not None and recalled.names is within:
                    return (within, recalled.allowed)
                allowed = self._authority.namespaces_allowed(self.actor, self.need, within)
                return None if allowed is None else (within, allowed)

    def is_still(self, visibility: Hashable, within: Namespaces) -> bool:
        """Whether the request saw rows by these rights alone: `visibility` is the key before it decided about rows.

        A long list is made in steps, and decides about a namespace when it meets the first row of it. Where the rights
        of its caller have changed meanwhile, it shows rows by both.
        """
        if self.visibility(within) != visibility:
            return False
        if self.sees_all or within is None or isinstance(within, str):
            return True
        allowed = self._authority.namespaces_allowed(self.actor, self.need, within) or frozenset()
        return all(name in within and is_seen == (name in allowed) for name, is_seen in self._namespaces.items())

    @property
    def is_management(self) -> bool:
        """Whether the caller showed a management token; false for all while access control is off."""
        is_controlled = not isinstance(self._authority, AllowAll)
        return is_controlled and self._authority.allows(self.actor, MANAGEMENT, ANYWHERE)

    @property
    def reads_nodes(self) -> bool:
        """Whether the caller may read nodes, so that texts about something else may name their metadata.

        It decides about no request, so a record of the request does not contain it.
        """
        return self._authority.allows(self.actor, NODE_READ, ANYWHERE)

    @property
    def is_recorded(self) -> bool:
        """Whether decisions are recorded, cached ones included."""
        return self._trace is not None

    def _noted(self, scope: Scope, is_allowed: bool) -> bool:
        if self._trace is not None:
            self._trace.add(self.need, scope, is_allowed=is_allowed)
        return is_allowed

    def name_object(self, kind: str, id: str) -> None:
        """Record the request's object where its path does not name it."""
        if self._trace is not None:
            self._trace.object = ObjectName(kind, id)

    def narrowed(self, need: Need) -> Access:
        """The same caller for a request with another need than its route declares."""
        return Access(self.actor, need, self._authority, self._trace)

    def for_thread(self) -> Access:
        """The same request with the rights that its caller has now, for work in a thread.

        Rows must be filtered by it there: only the thread of the event loop may ask an authority.
        """
        return Access(self.actor, self.need, self._authority.fixed(self.actor, self.need), self._trace)

    def renew(self) -> None:
        """Forget earlier decisions: while the request waited, the rights of the caller may have changed."""
        self.end_step()
        self._kept: dict[Scope, bool] = {}
        self._namespaces: dict[str, bool] = {}

    def require(self, scope: Scope) -> None:
        """Raises PermissionDenied unless `allows` is true."""
        if not self.allows(scope):
            raise PermissionDenied(DENIED)
