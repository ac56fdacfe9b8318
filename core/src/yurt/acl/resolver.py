"""From what a caller showed to what the caller may do: token, roles, policies, workload or node.

A resolver never opens: an unknown, revoked or expired token, a workload that is over, and a policy that cannot be read
leave a caller without rights, also without those of anybody who shows no token. It looks at the state it is given each
time, so that a revocation counts from the state that has it. What it keeps are compiled policies, by the names and
texts that they were made of, and the rights of callers for as long as the tables they follow from are the same objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar, assert_never

from yurt.access import Caller, InvalidToken, NoToken, ShownNode, ShownToken, ShownWorkload
from yurt.acl.assignments import attached_policies, policies_of, token_of
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.parsing import parse_policy
from yurt.acl.policy import Policy, PolicyError
from yurt.acl.rights import Kind, Rights, Workload
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import ANONYMOUS, MANAGEMENT, ACLPolicy, ACLToken, is_expired
from yurt.structs.questions import is_client_terminal

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PARSED_MAX: Final = 16_384
COMPILED_MAX: Final = 512
CALLERS_MAX: Final = 4_096
TOKEN_NOT_FOUND: Final = "ACL token not found"
TOKEN_EXPIRED: Final = "ACL token expired"
_OF_NODES: Final = 'node { policy = "read" }\nagent { policy = "read" }'
"""What the identity of a node may do as a token of the HTTP API."""


class Resolved(NamedTuple):
    """What a caller may do, and the token that it follows from."""

    rights: Rights
    token: ACLToken | None = None
    problem: str = ""
    """Why a caller is nobody."""


class _Kept(NamedTuple):
    """An answer, and the tables that it holds for."""

    tables: tuple[object, ...]
    resolved: Resolved


class Bounded(Generic[K, V]):
    """A cache of the entries that were used last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, which is the newest now."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Keep an entry; the one that was used longest ago goes for it."""
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
        assert len(self._entries) <= self._limit, (len(self._entries), self._limit)
        return value

    def __len__(self) -> int:
        return len(self._entries)


class Resolver:
    """Resolves callers; one for each server."""

    def __init__(self) -> None:
        self._parsed: Bounded[tuple[str, str], Policy] = Bounded(PARSED_MAX)
        self._compiled: Bounded[tuple[tuple[str, str], ...], CompiledPolicies] = Bounded(COMPILED_MAX)
        self._callers: Bounded[Caller, _Kept] = Bounded(CALLERS_MAX)
        self._of_nodes = CompiledPolicies((parse_policy("node", _OF_NODES),))

    def resolve(self, state: Snapshot, caller: Caller, now: UnixNano) -> Resolved:
        """What the caller may do in this state at this time."""
        match caller:
            case NoToken() | ShownToken():
                return self._still_valid(self._by_tables(state, caller), now)
            case ShownWorkload():
                return self._by_tables(state, caller)
            case ShownNode(node_id=node_id):
                is_known = node_id in state.nodes
                return Resolved(Rights(Kind.KNOWN, self._of_nodes)) if is_known else _nobody("node does not exist")
            case InvalidToken(problem=problem):
                return _nobody(problem)
            case _:
                assert_never(caller)

    def _still_valid(self, resolved: Resolved, now: UnixNano) -> Resolved:
        """The answer, unless the token's time is over by now."""
        token = resolved.token
        return _nobody(TOKEN_EXPIRED) if token is not None and is_expired(token, now) else resolved

    def _by_tables(self, state: Snapshot, caller: NoToken | ShownToken | ShownWorkload) -> Resolved:
        alloc = state.allocs.get(caller.alloc_id) if isinstance(caller, ShownWorkload) else None
        tables = (state.acl_tokens, state.acl_roles, state.acl_policies, alloc)
        kept = self._callers.get(caller)
        if kept is not None and all(map(_is_same, kept.tables, tables)):
            return kept.resolved
        try:
            resolved = self._looked_up(state, caller)
        except PolicyError as error:
            resolved = _nobody(str(error))
        self._callers.put(caller, _Kept(tables, resolved))
        return resolved

    def _looked_up(self, state: Snapshot, caller: NoToken | ShownToken | ShownWorkload) -> Resolved:
        if isinstance(caller, NoToken):
            return Resolved(Rights(Kind.ANONYMOUS, self._policies(_present(state, (ANONYMOUS,)))))
        if isinstance(caller, ShownWorkload):
            return self._workload(state, caller)
        token = token_of(state, caller.secret_hash)
        if token is None:
            return _nobody(TOKEN_NOT_FOUND)
        if token.type == MANAGEMENT:
            return Resolved(Rights(Kind.MANAGEMENT), token)
        return Resolved(Rights(Kind.KNOWN, self._policies(_present(state, policies_of(state, token)))), token)

    def _workload(self, state: Snapshot, caller: ShownWorkload) -> Resolved:
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
        policies = self._policies(attached_policies(state, workload))
        return Resolved(Rights(Kind.KNOWN, policies, workload=workload))

    def _policies(self, policies: Iterable[ACLPolicy]) -> CompiledPolicies:
        """The policies as one; by their texts, because after a restore an index may stand for another text."""
        key = tuple(sorted((policy.name, policy.rules) for policy in policies))
        known = self._compiled.get(key)
        if known is not None:
            return known
        return self._compiled.put(key, CompiledPolicies([self._policy(*each) for each in key]))

    def _policy(self, name: str, rules: str) -> Policy:
        known = self._parsed.get((name, rules))
        if known is not None:
            return known
        return self._parsed.put((name, rules), parse_policy(name, rules, filename=name, is_strict=False))


def _present(state: Snapshot, names: Iterable[str]) -> tuple[ACLPolicy, ...]:
    """The policies that exist: a deleted one gives nothing to tokens that still name it."""
    found = (state.acl_policies.get(name) for name in names)
    return tuple(policy for policy in found if policy is not None)


def _nobody(problem: str) -> Resolved:
    return Resolved(Rights(Kind.NOBODY), problem=problem)


def _is_same(one: object, other: object) -> bool:
    return one is other
