"""The authority of an agent with access control: decides about callers by the newest state."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from yurt.access import Actor, Caller, Decision, Identity, Need, Recalled, Scope, ShownToken
from yurt.access.needs import satisfied
from yurt.acl.assignments import token_of
from yurt.acl.decisions import decide
from yurt.acl.fixed_rights import FixedRights
from yurt.acl.identities import identity_of
from yurt.acl.resolver import Resolved, Resolver
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import hash_of_secret

ANSWERS_MAX: Final = 16_384
"""Answers that are remembered; then all are forgotten."""
NAMES_PER_SCOPE: Final = 16
"""Remembered names of namespaces that take about as much memory as one remembered scope."""


ONE_THREAD: Final = (
    "AclAuthority was asked in a second thread, where a revoked token could become valid again: "
    "give the thread `Access.for_thread()` or `View.for_thread()`"
)
"""The text of the assertion about the owner."""


class HasState(Protocol):
    """The holder of the newest state. An attribute, because a request asks several times."""

    state: Snapshot


class HasStateAge(Protocol):
    """Reports the seconds since the state was confirmed to be the newest, and the clock that measures them."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """The clock of `newest_at_s`."""
        ...

    @property
    def newest_at_s(self) -> float:
        """A time by the monotonic clock at which the state was the newest; at most that from which the age counts."""
        ...

    @property
    def state_age_s(self) -> float:
        """The age in seconds; infinite before the state was first confirmed to be the newest."""
        ...


class NewestState:
    """A state without other servers is always the newest."""

    newest_at_s = math.inf
    state_age_s = 0.0

    @staticmethod
    def monotonic() -> float:
        """Any time is before that at which the state is the newest."""
        return 0.0


class _Answers:
    """The answers for one token and one need, valid while the tables are the same and the token has not expired."""

    __slots__ = ("_authority", "_generation", "allowed", "caller", "everywhere", "names", "need", "scopes", "until")

    def __init__(self, authority: AclAuthority, caller: Caller, need: Need, until: UnixNano) -> None:
        self._authority = authority
        self._generation = authority.generation
        self.caller = caller
        self.need = need
        """Both are kept alive, so that no other object gets the `id()` under which the answers lie."""
        self.until = until
        """When the token expires; 0 for never."""
        self.scopes: set[Scope] = set()
        """Where the need is satisfied, as far as it was asked."""
        self.everywhere: bool | None = None
        """Whether it is in every scope; None: not asked yet."""
        self.names: frozenset[str] | None = None
        self.allowed = frozenset[str]()
        """The names of the last question about namespaces, and those in which the need is satisfied."""

    def holds(self) -> bool:
        """Whether the tables are those of the newest state, the state is new enough, and the token has not expired."""
        return self._authority.is_newest(self._generation) and self._authority.is_timely(self.until)


class AclAuthority:
    """Decides by tokens and policies; looks them up for each decision, so that a revocation applies at once.

    One thread alone may ask it, that of the event loop that applies changes of the state: another thread could store an
    answer of an old state after the change that ends it. Work in a thread uses `fixed`.
    """

    def __init__(
        self,
        source: HasState,
        now: Callable[[], UnixNano],
        *,
        age: HasStateAge | None = None,
        age_max_s: float = math.inf,
        thread: Callable[[], int] = lambda: 0,
    ) -> None:
        """`age` reports the age of the state. Above `age_max_s` the state may lack a revocation, so that
        `allows`, `decide` and `allows_everywhere` raise Unavailable. `thread` identifies the running
        thread.
        """
        self._thread = thread
        self._source = source
        self._now = now
        self._age = age or NewestState()
        self._age_max_s = age_max_s
        self._monotonic = self._age.monotonic
        self._resolver = Resolver()
        self._answers: dict[tuple[int, int], _Answers] = {}
        """The answers for tokens, by the `id()` of caller and need. A browser's session, a workload and a node are
        resolved for each decision: their rights follow from more than these tables and the token's expiry.
        """
        self._recent: _Answers | None = None
        """Those that were looked up last: a list asks three times in a row."""
        self._scopes = 0
        """The number of remembered scopes; each `NAMES_PER_SCOPE` remembered names count as one."""
        self._tables: tuple[object, ...] = (None, None, None)
        """The tokens, roles and policies that the answers follow from."""
        self.generation = object()
        """Another one whenever all answers are forgotten."""
        self._answered_in: Snapshot | None = None
        """The last state that was seen to have these tables."""
        self._owner: int | None = None
        """The thread that asks, from its first question on."""
        self._last: tuple[Snapshot, Caller, Resolved] | None = None
        """The last answer that time does not end: a request asks a few times in a row about the same caller."""

    def resolve(self, actor: Actor) -> Resolved:
        """The actor's rights."""
        return self._resolved(self._source.state, actor)

    def fixed(self, actor: Actor, need: Need) -> FixedRights:
        """The actor's rights now, for a thread."""
        self._need_fresh_state(need)
        return FixedRights(self.resolve(actor).rights)

    def _resolved(self, state: Snapshot, actor: Actor) -> Resolved:
        return self._lasting(state, actor) or self._resolver.resolve(state, actor.caller, self._now())

    def _is_owner(self) -> bool:
        """Whether this thread is the one that asked first."""
        thread = self._thread()
        if thread == self._owner:
            return True
        if self._owner is None:
            self._owner = thread
        return thread == self._owner

    def _lasting(self, state: Snapshot, actor: Actor) -> Resolved | None:
        """As `_resolved`, if no expiry ends the result."""
        assert self._is_owner(), ONE_THREAD
        last = self._last
        if last is not None and last[0] is state and last[1] is actor.caller:
            return last[2]
        found = self._resolver.lasting(state, actor.caller)
        if found is not None:
            self._last = (state, actor.caller, found)
        return found

    def preparation(self, actor: Actor) -> Callable[[], Callable[[], None]] | None:
        """The parsing of long policies, as work for a thread."""
        state = self._source.state
        if self._lasting(state, actor) is not None:
            return None
        return self._resolver.preparation(state, actor.caller)

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor has the need's rights on objects in the scope."""
        assert self._is_owner(), ONE_THREAD
        cached = self._recall(actor.caller, need)
        if cached is not None and scope in cached.scopes:
            return True
        self._need_fresh_state(need)
        state = self._source.state
        resolved = self._resolved(state, actor)
        is_allowed = resolved.rights.allows(need, scope)
        if is_allowed and scope.variable is None:
            answers = self._answers_for(state, actor.caller, need, resolved)
            if answers is not None:
                answers.scopes.add(scope)
                self._scopes += 1
        return is_allowed

    def recall(self, actor: Actor, need: Need, scope: Scope) -> Recalled | None:
        """The cached answers, if `allows` was true for the same input with the same tokens, roles and policies.

        The thread is not checked, because every request comes here: another thread must not ask.
        """
        cached = self._recall(actor.caller, need)
        return cached if cached is not None and scope in cached.scopes else None

    def _recall(self, caller: Caller, need: Need) -> _Answers | None:
        """The cached answers, if they are valid in the newest state and at this time.

        Each request is decided here, so each call and each attribute counts.
        """
        if self._source.state is not self._answered_in:
            self._follow_tables(self._source.state)
        found = self._recent
        if found is None or found.caller is not caller or found.need is not need:
            try:
                found = self._answers[id(caller), id(need)]
            except KeyError:
                return None
            self._recent = found
        return found if self.is_timely(found.until) else None

    def is_newest(self, generation: object) -> bool:
        """Whether answers of this generation follow from the newest state."""
        if self._source.state is not self._answered_in:
            self._follow_tables(self._source.state)
        return generation is self.generation

    def is_timely(self, until: UnixNano) -> bool:
        """Whether the state is new enough to decide by, and `until` is not over; 0 is never."""
        if self._monotonic() - self._age.newest_at_s > self._age_max_s and self._age.state_age_s > self._age_max_s:
            return False
        return not 0 < until <= self._now()

    def _answers_for(self, state: Snapshot, caller: Caller, need: Need, resolved: Resolved) -> _Answers | None:
        """The cache entry of a caller who was resolved in `state`.

        None where none may be remembered: for callers whose rights follow from more than tables of tokens and policies,
        and where a newer state exists.
        """
        if resolved.token is None or not isinstance(caller, ShownToken) or caller.session_id:
            return None
        if state is not self._source.state:
            return None
        self._follow_tables(state)
        if len(self._answers) + self._scopes >= ANSWERS_MAX:
            self._forget()
        found = self._answers.get((id(caller), id(need)))
        if found is None:
            found = _Answers(self, caller, need, UnixNano(resolved.token.expiration_time))
            self._answers[id(caller), id(need)] = found
        return found

    def _follow_tables(self, state: Snapshot) -> None:
        """Forget all answers once a token, a role or a policy has changed."""
        assert self._is_owner(), ONE_THREAD
        tokens, roles, policies = self._tables
        if state.acl_tokens is not tokens or state.acl_roles is not roles or state.acl_policies is not policies:
            self._forget()
            self._tables = (state.acl_tokens, state.acl_roles, state.acl_policies)
        self._answered_in = state

    def _forget(self) -> None:
        self._answers.clear()
        self.generation = object()
        self._recent, self._scopes = None, 0

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
        return identity_of(self._source.state, actor.caller, self.resolve(actor))

    def is_secret(self, text: str) -> bool:
        """Whether the text is the secret of a stored token, an expired one included, or of a node."""
        state, secret_hash = self._source.state, hash_of_secret(text)
        is_node = any(True for _ in state.nodes.where("secret", secret_hash))
        return is_node or token_of(state, secret_hash) is not None

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` is true in every scope."""
        assert self._is_owner(), ONE_THREAD
        cached = self._recall(actor.caller, need)
        if cached is not None and cached.everywhere is not None:
            return cached.everywhere
        self._need_fresh_state(need)
        state = self._source.state
        resolved = self._resolved(state, actor)
        found = resolved.rights.allows_everywhere(need)
        answers = self._answers_for(state, actor.caller, need, resolved)
        if answers is not None:
            answers.everywhere = found
        return found

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str] | None:
        """The namespaces among `names` in which `allows` is true."""
        assert self._is_owner(), ONE_THREAD
        cached = self._recall(actor.caller, need)
        # The names are those of a table, most often the same object as before: to compare sets costs more.
        if cached is not None and (cached.names is names or cached.names == names):
            return cached.allowed
        self._need_fresh_state(need)
        state = self._source.state
        resolved = self._resolved(state, actor)
        found = resolved.rights.namespaces_allowed(need, names)
        answers = self._answers_for(state, actor.caller, need, resolved)
        if answers is not None:
            self._scopes += len(found) // NAMES_PER_SCOPE - len(answers.allowed) // NAMES_PER_SCOPE
            answers.names, answers.allowed = names, found
        return found

    def standing(self, actor: Actor) -> Hashable | None:
        """The compiled policies and the caller's authentication level; a workload's or
        a node's rights are shared with no other caller."""
        rights = self.resolve(actor).rights
        is_own = rights.workload is not None or rights.node_id
        return rights if is_own else (rights.kind, rights.policies)

    def _need_fresh_state(self, need: Need) -> None:
        """Raises Unavailable where the state is too old to decide; what anybody may do needs no state."""
        age_s = self._age.state_age_s
        if age_s <= self._age_max_s or satisfied(need, lambda _: False, has_row=True):
            return
        seen = "has not seen the leader's state yet" if age_s == math.inf else f"is {age_s:.0f} s behind the leader"
        raise Unavailable(
            f"this server {seen}, and decides about tokens for {self._age_max_s:.0f} s only (acl.token_ttl): "
            "ask another server, or without ?stale"
        )
