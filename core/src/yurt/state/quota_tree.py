"""The tree of quotas in one region: parents, guarantees, and the quotas under which namespaces count.

The usage of a namespace counts under the quota that it names, and under all quotas above that one. A *borrower* is a
quota that uses more than its guarantee, or a namespace without a quota. Values that depend on quotas and namespaces
alone are cached until one of them changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from yurt.sdk.value import Duration
from yurt.state.namespace_usage import MILLI, NamespaceUsage
from yurt.state.quota_totals import DEPTH_MAX, is_covered, may_be_covered
from yurt.state.store import Snapshot
from yurt.structs.quota import AMOUNT_FIELDS, PROTECTION, NodePoolLimit, QuotaResources, QuotaSpec

NO_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType({})
WEIGHT_ONE: Final = 1000
"""The integer that represents a weight of 1."""


class GuaranteedPart(NamedTuple):
    """Guaranteed amounts in one node pool, or in all together (`pool` is empty)."""

    pool: str
    amounts: tuple[tuple[str, int], ...]
    """Amounts by dimension: "cpu", "memory"; "device nvidia/gpu" in thousandths."""


class QuotaShare(NamedTuple):
    """A quota in its tree."""

    name: str
    chain: tuple[str, ...]
    """The names of the quota and of those above it, up to the root."""
    guaranteed: tuple[GuaranteedPart, ...]
    protection: Duration


class QuotaTree:
    """The quotas of a region."""

    __slots__ = ("_guaranteed", "_named_by", "_of_namespace", "_parents", "has_guarantees", "members", "shares")

    def __init__(self, quotas: Mapping[str, QuotaSpec], namespaces: Mapping[str, str], region: str) -> None:
        """`namespaces`: the quota of each namespace."""
        self.shares = {name: _share(name, quotas, region) for name in quotas}
        self.has_guarantees = any(share.guaranteed for share in self.shares.values())
        self._of_namespace = {name: self.shares[quota] for name, quota in namespaces.items() if quota in self.shares}
        members: dict[str, list[str]] = {name: [] for name in quotas}
        for namespace, share in self._of_namespace.items():
            for name in share.chain:
                members[name].append(namespace)
        self.members = {name: tuple(sorted(names)) for name, names in members.items()}
        """The namespaces that count under each quota."""
        self._guaranteed = {
            namespace: tuple(name for name in share.chain if self.shares[name].guaranteed)
            for namespace, share in self._of_namespace.items()
        }

        self._named_by: dict[str, list[str]] = {}
        for namespace, share in self._of_namespace.items():
            self._named_by.setdefault(share.name, []).append(namespace)
        self._parents = frozenset(spec.parent for spec in quotas.values())

    def named_by(self, quota: str) -> Sequence[str]:
        """The namespaces that name a quota itself."""
        return self._named_by.get(quota, ())

    def is_parent(self, quota: str) -> bool:
        """Whether the quota has quotas below it."""
        return quota in self._parents

    def guaranteed(self, namespace: str) -> tuple[str, ...]:
        """The quotas with a guarantee under which a namespace counts, its own first."""
        return self._guaranteed.get(namespace, ())

    def of(self, namespace: str) -> QuotaShare | None:
        """The quota that a namespace names, if it is in the tree."""
        return self._of_namespace.get(namespace)

    def chain(self, namespace: str) -> tuple[str, ...]:
        """The quotas under which a namespace counts, its own first; empty without a quota."""
        share = self._of_namespace.get(namespace)
        return () if share is None else share.chain

    def apart(self, namespace: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The quotas under which only the first namespace counts, and those under which only the second does."""
        own_names, other_names = self.chain(namespace), self.chain(other)
        return tuple(name for name in own_names if name not in other_names), tuple(
            name for name in other_names if name not in own_names
        )

    def protection(self, namespace: str) -> Duration:
        """The minimum run time of the allocations for which a namespace borrows."""
        share = self._of_namespace.get(namespace)
        return PROTECTION if share is None else share.protection


class _CachedTrees:
    """Cached values derived from one table of quotas, by region."""

    __slots__ = ("has_guarantees", "trees")

    def __init__(self) -> None:
        self.has_guarantees: dict[str, bool] = {}
        self.trees: dict[str, tuple[object, QuotaTree]] = {}
        """Trees, each with the table of namespaces from which it was built."""


_caches: Final[WeakKeyDictionary[object, _CachedTrees]] = WeakKeyDictionary()
"""By table of quotas. Not in the columns, which `apply` would have to build for it."""


def tree_of(state: Snapshot, region: str) -> QuotaTree | None:
    """The tree of a region; None where no quota has a guarantee."""
    return cached_tree(state, region) if has_guarantees(state, region) else None


def has_guarantees(state: Snapshot, region: str) -> bool:
    """Whether a quota has a guarantee in a region; computed once per change of quotas."""
    if not len(state.quotas):
        return False
    by_region = _cache_of(state).has_guarantees
    is_guaranteed = by_region.get(region)
    if is_guaranteed is None:
        is_guaranteed = by_region[region] = any(guaranteed_parts(row, region) for row in state.quotas.values())
    return is_guaranteed


def cached_tree(state: Snapshot, region: str) -> QuotaTree:
    """The tree of a region, built once per change of quotas and namespaces."""
    trees, namespaces = _cache_of(state).trees, state.namespaces
    cached = trees.get(region)
    if cached is not None and cached[0] is namespaces:
        return cached[1]
    named = {row.name: row.quota for row in namespaces.values() if row.quota}
    tree = QuotaTree({row.name: row for row in state.quotas.values()}, named, region)
    trees[region] = (namespaces, tree)
    return tree


def _cache_of(state: Snapshot) -> _CachedTrees:
    cache = _caches.get(state.quotas)
    if cache is None:
        # Attempts run in threads: `setdefault` gives two concurrent ones the same object.
        cache = _caches.setdefault(state.quotas, _CachedTrees())
    return cache


def chain_of(name: str, quotas: Mapping[str, QuotaSpec]) -> tuple[str, ...]:
    """A quota and those above it; ends before a quota that is missing, met before, or too far up."""
    chain: list[str] = []
    while name and name in quotas and name not in chain and len(chain) < DEPTH_MAX:
        chain.append(name)
        name = quotas[name].parent
    return tuple(chain)


def guaranteed_parts(spec: QuotaSpec, region: str) -> tuple[GuaranteedPart, ...]:
    """The guarantees of a quota in a region."""
    limit = spec.limit_of(region)
    if limit is None or limit.guaranteed is None:
        return ()
    pools = (GuaranteedPart(pool.node_pool, _amounts(pool)) for pool in limit.guaranteed.node_pools)
    return tuple(part for part in (GuaranteedPart("", _amounts(limit.guaranteed)), *pools) if part.amounts)


def amount_in(used: NamespaceUsage, dimension: str) -> int:
    """The amount of a dimension that a usage certainly has."""
    return _amount(used, dimension, is_covered)


def most_in(used: NamespaceUsage, dimension: str) -> int:
    """The amount of a dimension that a usage may have: a request for any "gpu" may be met by a "nvidia/gpu/H100"."""
    return _amount(used, dimension, may_be_covered)


def _amount(used: NamespaceUsage, dimension: str, is_counted: Callable[[str, str], bool]) -> int:
    kind, _, device = dimension.partition(" ")
    if device:
        return sum(amount for name, amount in used.devices if is_counted(name, device))
    amount: int = getattr(used, kind)
    return amount


def _share(name: str, quotas: Mapping[str, QuotaSpec], region: str) -> QuotaShare:
    spec = quotas[name]
    protection = PROTECTION if spec.protection is None else spec.protection
    chain = chain_of(name, quotas)
    assert chain[:1] == (name,), (name, chain, "a namespace counts first under the quota that it names")
    return QuotaShare(name, chain, guaranteed_parts(spec, region), protection)


def _amounts(resources: QuotaResources | NodePoolLimit) -> tuple[tuple[str, int], ...]:
    plain = ((name, getattr(resources, field) or 0) for name, field in AMOUNT_FIELDS.items())
    devices = ((f"device {device.name}", device.count * MILLI) for device in resources.devices)
    return tuple((name, amount) for name, amount in (*plain, *devices) if amount > 0)


def weights_of_namespaces(state: Snapshot) -> Mapping[str, int]:
    """The weights of namespaces whose quotas have a weight or a parent, in thousandths.

    A quota has its weight's part of its parent's weight among all quotas of that parent, a root its own weight;
    namespaces of one quota have equal parts of its weight. Kept until quotas or namespaces change.
    """
    quotas, namespaces = state.quotas, state.namespaces
    if not len(quotas):
        return NO_WEIGHTS
    memo = state.columns.nodes.lasting
    cached = memo.get("weights of namespaces")
    if cached is None or cached[0] is not quotas or cached[1] is not namespaces:
        named = {row.name: row.quota for row in namespaces.values() if row.quota}
        made = dict(_weights({row.name: row for row in quotas.values()}, named))
        cached = memo["weights of namespaces"] = (quotas, namespaces, made)
    weights: Mapping[str, int] = cached[2]
    return weights


def _weights(quotas: Mapping[str, QuotaSpec], namespaces: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    siblings: dict[str, float] = {}
    for spec in quotas.values():
        siblings[spec.parent] = siblings.get(spec.parent, 0.0) + _weight(spec)
    users = Counter(namespaces.values())
    for namespace, quota in sorted(namespaces.items()):
        chain = [quotas[name] for name in chain_of(quota, quotas)]
        if not any(spec.parent or spec.weight is not None for spec in chain):
            continue
        weight = 1.0
        for spec in chain:
            weight *= _weight(spec) / siblings[spec.parent] if spec.parent else _weight(spec)
        yield namespace, max(1, round(weight * WEIGHT_ONE / users[quota]))


def _weight(spec: QuotaSpec) -> float:
    return 1.0 if spec.weight is None else spec.weight
