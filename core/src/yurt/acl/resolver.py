"""Resolves a credential to the rights of its caller, by token, roles, policies, workload or node.

A resolver never opens: an unknown, revoked or expired token, a workload that is over, and a policy that cannot be read
leave a caller without rights, also without those of anybody who shows no token. It looks at the state it is given each
time, so that a revocation counts from the state that has it. What it keeps are compiled policies, by the names and
texts that they were made of, and the rights of callers for as long as the tables they follow from are the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias, assert_never

from yurt.access import Caller, InvalidToken, NoToken, ShownNode, ShownToken, ShownWorkload
from yurt.acl.assignments import attached_policies, policies_of, token_of
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.lru_cache import LruCache
from yurt.acl.parsing import parse_policy
from yurt.acl.policy import Policy, PolicyError
from yurt.acl.rights import AuthenticationLevel, Rights, Workload
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import ANONYMOUS, MANAGEMENT, ACLPolicy, ACLToken, is_expired
from yurt.structs.predicates import is_client_terminal

PARSED_MAX: Final = 16_384
COMPILED_MAX: Final = 512
CALLERS_MAX: Final = 4_096
LONG_TEXT: Final = 16 * 1024
"""Characters of policies that are parsed at once; more is returned as work for a thread (`preparation`)."""
CALLER_CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""The limit of characters of all policies of one caller: 64 of the longest. Beyond it a caller has no rights."""
_WITH_POLICIES: Final = (NoToken, ShownToken, ShownWorkload)
"""Callers whose rights follow from policies; a tuple, because to make a union for each request costs more."""
TOKEN_NOT_FOUND: Final = "ACL token not found"
TOKEN_EXPIRED: Final = "ACL token expired"
IDENTITY_EXPIRED: Final = "the identity has expired"
SIGNED_OUT: Final = "the session was signed out: sign in again"
SESSION_OVER: Final = "the session is over: sign in again"
_OF_NODES: Final = 'node { policy = "read" }\nagent { policy = "read" }'
"""The rights of a node's identity when used as a token of the HTTP API."""


Read: TypeAlias = Callable[[Iterable[ACLPolicy]], CompiledPolicies]
Texts: TypeAlias = tuple[tuple[str, str], ...]
"""Names and texts of the policies of a caller."""


class _TakesLong(Exception):
    """These policies have to be read, and are too long to be read at once."""

    def __init__(self, texts: Texts) -> None:
        super().__init__()
        self.texts = texts


class Resolved(NamedTuple):
    """A caller's rights, and the token that they come from."""

    rights: Rights
    token: ACLToken | None = None
    problem: str = ""
    """Why a caller is anonymous."""


class _CachedRights(NamedTuple):
    """Cached rights, and the tables from which they were computed."""

    tables: tuple[object, ...]
    resolved: Resolved


class Resolver:
    """Resolves callers; one for each server."""

    def __init__(self) -> None:
        self._parsed: LruCache[tuple[str, str], Policy] = LruCache(PARSED_MAX)
        self._compiled: LruCache[Texts, CompiledPolicies | str] = LruCache(COMPILED_MAX)
        """By their texts, because after a restore an index may stand for another text; a str names the error."""
        self._callers: LruCache[Caller, _CachedRights] = LruCache(CALLERS_MAX)
        self._newest: tuple[Snapshot | None, dict[Caller, Resolved]] = (None, {})
        """The state that was asked about last, and the answers for it: a request asks several times about one. Both
        change together, so that no answer of an earlier state counts for a later one.
        """
        self._of_nodes = CompiledPolicies((parse_policy("node", _OF_NODES),))

    def lasting(self, state: Snapshot, caller: Caller) -> Resolved | None:
        """The result of `resolve` in this state at any time; None when unknown yet, or when an expiry limits it.

        Most requests show a token without an expiry that was looked up in the same state already.
        """
        newest_state, answers = self._newest
        if state is not newest_state:
            return None
        found = answers.get(caller)
        if found is None or found.token is None or found.token.expiration_time:
            return None
        return None if isinstance(caller, ShownToken) and caller.session_id else found

    def resolve(self, state: Snapshot, caller: Caller, now: UnixNano) -> Resolved:
        """The caller's rights in this state at this time."""
        match caller:
            case NoToken():
                return self._by_tables(state, caller)
            case ShownToken():
                problem = _problem_of_session(state, caller, now) if caller.session_id else ""
                return _nobody(problem) if problem else self._still_valid(self._by_tables(state, caller), now)
            case ShownWorkload() | ShownNode():
                problem = _problem_of_identity(state, caller, now)
                if problem:
                    return _nobody(problem)
                if isinstance(caller, ShownWorkload):
                    return self._by_tables(state, caller)
                is_registered = caller.node_id in state.nodes
                if not is_registered:
                    return _nobody("node does not exist")
                return Resolved(Rights(AuthenticationLevel.KNOWN, self._of_nodes, node_id=caller.node_id))
            case InvalidToken(problem=problem):
                return _nobody(problem)
            case _:
                assert_never(caller)

    def preparation(self, state: Snapshot, caller: Caller) -> Callable[[], Callable[[], None]] | None:
        """Slow work to do in a thread before the caller is resolved; None when there is none.

        The work returns a function that the resolver's own thread calls to store the result. Without it `resolve` reads
        the policies itself.
        """
        if self.lasting(state, caller) is not None:
            return None
        if not isinstance(caller, _WITH_POLICIES) or self._cached(state, caller) is not None:
            return None
        try:
            self._looked_up(state, caller, self._short_policies)
        except _TakesLong as long:
            parsed = {each: found for each in long.texts if (found := self._parsed.get(each)) is not None}
            return partial(self._prepared, long.texts, parsed)
        except Invalid:
            return None
        return None

    def _still_valid(self, resolved: Resolved, now: UnixNano) -> Resolved:
        """The answer, unless the token's time is over by now."""
        token = resolved.token
        return _nobody(TOKEN_EXPIRED) if token is not None and is_expired(token, now) else resolved

    def _by_tables(self, state: Snapshot, caller: NoToken | ShownToken | ShownWorkload) -> Resolved:
        cached = self._cached(state, caller)
        if cached is not None:
            return cached
        try:
            resolved = self._looked_up(state, caller, self._policies)
        except Invalid as error:
            resolved = _nobody(str(error))
        self._callers.put(caller, _CachedRights(_tables(state, caller), resolved))
        return resolved

    def _cached(self, state: Snapshot, caller: NoToken | ShownToken | ShownWorkload) -> Resolved | None:
        newest_state, answers = self._newest
        if state is not newest_state:
            answers = dict[Caller, Resolved]()
            self._newest = (state, answers)
        resolved = answers.get(caller)
        if resolved is not None:
            return resolved
        cached = self._callers.get(caller)
        if cached is None or not all(map(_is_same, cached.tables, _tables(state, caller))):
            return None
        answers[caller] = cached.resolved
        return cached.resolved

    def _looked_up(self, state: Snapshot, caller: NoToken | ShownToken | ShownWorkload, read: Read) -> Resolved:
        if isinstance(caller, NoToken):
            return Resolved(Rights(AuthenticationLevel.ANONYMOUS, read(_present(state, (ANONYMOUS,)))))
        if isinstance(caller, ShownWorkload):
            return self._workload(state, caller, read)
        token = token_of(state, caller.secret_hash)
        if token is None:
            return _nobody(TOKEN_NOT_FOUND)
        if token.type == MANAGEMENT:
            return Resolved(Rights(AuthenticationLevel.MANAGEMENT), token)
        return Resolved(Rights(AuthenticationLevel.KNOWN, read(_present(state, policies_of(state, token)))), token)

    def _workload(self, state: Snapshot, caller: ShownWorkload, read: Read) -> Resolved:
        alloc = state.allocs.get(caller.alloc_id)
        if alloc is None or alloc.job is None or alloc.namespace != caller.namespace:
            return _nobody("allocation does not exist")
        if is_client_terminal(alloc):
            return _nobody("allocation is terminal")
        workload = Workload(
            namespace=caller.namespace,
            job=caller.job,
            group=alloc.task_group,
            task=caller.task,
            alloc_id=caller.alloc_id,
        )
        policies = read(attached_policies(state, workload))
        return Resolved(Rights(AuthenticationLevel.KNOWN, policies, workload=workload))

    def _short_policies(self, policies: Iterable[ACLPolicy]) -> CompiledPolicies:
        """The policies as one; raises _TakesLong where that takes long."""
        texts = _texts(policies)
        if self._compiled.get(texts) is None and LONG_TEXT < _characters(texts) <= CALLER_CHARACTERS_MAX:
            raise _TakesLong(texts)
        return self._of_texts(texts)

    def _policies(self, policies: Iterable[ACLPolicy]) -> CompiledPolicies:
        """The policies as one; raises Invalid where they cannot be read."""
        return self._of_texts(_texts(policies))

    def _of_texts(self, texts: Texts) -> CompiledPolicies:
        found = self._compiled.get(texts)
        if found is None:
            if (characters := _characters(texts)) > CALLER_CHARACTERS_MAX:
                found = f"the policies of the caller hold {characters} characters, {CALLER_CHARACTERS_MAX} are possible"
                raise Invalid(found)
            parsed = {each: policy for each in texts if (policy := self._parsed.get(each)) is not None}
            self._prepared(texts, parsed)()
            found = self._compiled.get(texts)
        if not isinstance(found, CompiledPolicies):
            raise Invalid(found or "the policies cannot be read")
        return found

    def _prepared(self, texts: Texts, cache: Mapping[tuple[str, str], Policy]) -> Callable[[], None]:
        """Parse policies, in any thread; the returned function stores the result."""
        parsed: list[Policy] = []
        try:
            for name, rules in texts:
                found = cache.get((name, rules))
                parsed.append(found or parse_policy(name, rules, filename=name, is_strict=False))
            compiled: CompiledPolicies | str = CompiledPolicies(parsed)
        except PolicyError as error:
            compiled = str(error)

        def keep() -> None:
            for each, policy in zip(texts, parsed, strict=False):
                self._parsed.put(each, policy)
            self._compiled.put(texts, compiled)

        return keep


def _problem_of_identity(state: Snapshot, caller: ShownWorkload | ShownNode, now: UnixNano) -> str:
    """Why a signed identity no longer counts; "" when it does. Its root key may be removed while a stream is open."""
    if caller.valid_until and caller.valid_until <= now:
        return IDENTITY_EXPIRED
    if caller.key_id and caller.key_id not in state.root_keys:
        return "the root key that signed the identity was removed"
    return ""


def _problem_of_session(state: Snapshot, caller: ShownToken, now: UnixNano) -> str:
    """Why a browser's session no longer counts; "" when it does. Its holder may sign out while a stream is open."""
    if caller.session_id in state.ended_sessions:
        return SIGNED_OUT
    if caller.valid_until <= now:
        return SESSION_OVER
    return "" if caller.key_id in state.root_keys else "the root key that sealed the session was removed"


def _present(state: Snapshot, names: Iterable[str]) -> tuple[ACLPolicy, ...]:
    """The existing policies: deleted ones grant nothing to tokens that still name them."""
    found = (state.acl_policies.get(name) for name in names)
    return tuple(policy for policy in found if policy is not None)


def _texts(policies: Iterable[ACLPolicy]) -> Texts:
    return tuple(sorted((policy.name, policy.rules) for policy in policies))


def _characters(texts: Texts) -> int:
    return sum(len(rules) for _, rules in texts)


def _tables(state: Snapshot, caller: NoToken | ShownToken | ShownWorkload) -> tuple[object, ...]:
    """The tables from which a caller's rights are computed."""
    alloc = state.allocs.get(caller.alloc_id) if isinstance(caller, ShownWorkload) else None
    return (state.acl_tokens, state.acl_roles, state.acl_policies, alloc)


def _nobody(problem: str) -> Resolved:
    return Resolved(Rights(AuthenticationLevel.NOBODY), problem=problem)


def _is_same(one: object, other: object) -> bool:
    return one is other
