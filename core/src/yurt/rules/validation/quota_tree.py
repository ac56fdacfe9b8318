"""The rules between quotas: parents exist and form no cycle, and guarantees fit into those of the quotas above.

A state machine decides them, on the quotas as they are when the command is applied: of two quotas that each would fit
alone, the second is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.state.quota_totals import DEPTH_MAX
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec, amounts_of

Amounts = dict[str, int]
NAMES_SHOWN: Final = 5


class GuaranteeKey(NamedTuple):
    """A dimension in a region and a node pool; an empty pool stands for all pools."""

    region: str
    pool: str
    dimension: str


def tree_problems(spec: QuotaSpec, quotas: Mapping[str, QuotaSpec]) -> Iterator[str]:
    """Problems of a quota among the others; `quotas` includes its new specification, which is checked."""
    path = [spec.name]
    while quotas[path[-1]].parent:
        above = quotas[path[-1]].parent
        if above in path:
            yield f"parent: {' -> '.join((*path, above))} is a cycle; a quota cannot be above itself"
            return
        if above not in quotas:
            named = "" if path[-1] == spec.name else f', the parent of "{path[-1]}",'
            yield f'parent: quota "{above}"{named} does not exist; apply it first'
            return
        path.append(above)
    children = _children(quotas)
    height = len(path) + _depth_below(spec.name, children) - 1
    if height > DEPTH_MAX:
        yield f"parent: {height} quotas from the top to the lowest below this one, at most {DEPTH_MAX} are possible"
        return
    bounds = {
        name: tuple(bound for limit in quotas[name].limits for bound in _bounds(limit))
        for name in path
        if name in children
    }
    keys = {place for each in bounds.values() for place, _, _ in each}
    amounts = _guaranteed_amounts(path[-1], keys, quotas, children)
    for name, of_parent in bounds.items():
        yield from _sum_problems(name, of_parent, {each: amounts[each] for each in children[name]})


class ForestProblems(NamedTuple):
    """Problems of all quotas at once."""

    detached: Mapping[str, str]
    """Why quotas are in no tree that Yurt could use, by their names."""
    sums: tuple[str, ...]
    """Guarantees that exceed those above them."""


def forest_problems(quotas: Mapping[str, QuotaSpec]) -> ForestProblems:
    """The problems of all quotas, in time that grows with their number; `tree_problems` of each would be quadratic."""
    children = _children(quotas)
    level, attached, sums = list(children.get("", ())), set[str](), list[str]()
    for _ in range(DEPTH_MAX):
        attached.update(level)
        level = [below for name in level for below in children.get(name, ())]
    too_deep = f"parent: {DEPTH_MAX} or more quotas are above it, and a tree can have {DEPTH_MAX} levels"
    cut = "parent: no top is above it, since a parent is missing or they form a cycle"
    detached = dict.fromkeys(_below(level, children), too_deep)
    detached |= {name: cut for name in quotas if name not in attached and name not in detached}
    for name in sorted(attached & children.keys()):
        # By parent: what one asks for is looked for below it only, and no deeper than trees are.
        bounds = [bound for limit in quotas[name].limits for bound in _bounds(limit)]
        if bounds:
            amounts = _guaranteed_amounts(name, {place for place, _, _ in bounds}, quotas, children)
            sums.extend(_sum_problems(name, bounds, {each: amounts[each] for each in children[name]}))
    return ForestProblems(detached, tuple(sums))


def _below(names: Iterable[str], children: Mapping[str, Sequence[str]]) -> list[str]:
    """These quotas and all below them; none of them is in a cycle."""
    found = list(names)
    for name in found:
        found.extend(children.get(name, ()))
    return found


def _children(quotas: Mapping[str, QuotaSpec]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(quotas):
        found.setdefault(quotas[name].parent, []).append(name)
    return found


def _depth_below(name: str, children: Mapping[str, list[str]]) -> int:
    """The number of levels from this quota down. The caller has excluded a cycle above it, so none is below."""
    depth, level = 0, [name]
    while level and depth <= DEPTH_MAX:
        depth += 1
        level = [below for each in level for below in children.get(each, ())]
    return depth


def _sum_problems(
    parent: str, bounds: Iterable[tuple[GuaranteeKey, int, str]], below: Mapping[str, Mapping[GuaranteeKey, int]]
) -> Iterator[str]:
    """Dimensions in which the guarantees directly below a quota exceed its own guarantee or its limit."""
    for place, amount, kind in bounds:
        own = {name: amounts.get(place, 0) for name, amounts in below.items()}
        total = sum(own.values())
        if total > amount:
            shown = [f"{name} {number}" for name, number in own.items() if number]
            in_pool = f'node_pool "{place.pool}": ' if place.pool else ""
            yield (
                f'guaranteed: in region "{place.region}" {in_pool}{place.dimension} of the quotas below "{parent}" '
                f"add up to {total} ({_listed(shown)}), above its {kind} of {amount}; lower them, or raise it"
            )


def _bounds(limit: QuotaLimit) -> Iterator[tuple[GuaranteeKey, int, str]]:
    """(dimension, amount, kind of bound) for the sum of the guarantees of the quotas below."""
    guaranteed, allowed = _by_pool(limit.guaranteed), _by_pool(limit.region_limit)
    for pool in dict.fromkeys((*guaranteed, *allowed)):
        own, most = guaranteed.get(pool, {}), allowed.get(pool, {})
        for dimension in dict.fromkeys((*own, *most)):
            place = GuaranteeKey(limit.region, pool, dimension)
            if own.get(dimension, 0) > 0:
                yield place, own[dimension], "own guarantee"
            elif dimension in most:
                yield place, max(0, most[dimension]), "limit"


def _by_pool(resources: QuotaResources | None) -> dict[str, Amounts]:
    """Amounts by node pool; "" stands for all pools."""
    if resources is None:
        return {}
    pools: Iterable[NodePoolLimit] = resources.node_pools
    return {"": amounts_of(resources)} | {pool.node_pool: amounts_of(pool) for pool in pools}


def _guaranteed_amounts(
    top: str, keys: Iterable[GuaranteeKey], quotas: Mapping[str, QuotaSpec], children: Mapping[str, Sequence[str]]
) -> dict[str, dict[GuaranteeKey, int]]:
    """The guarantee of each quota from one down: its own or the sum of those below it, whichever is more.

    One pass from the lowest up: copies of another region's quotas may form trees of any depth.
    """
    of_region: dict[str, list[GuaranteeKey]] = {}
    for place in keys:
        of_region.setdefault(place.region, []).append(place)
    order = _below([top], children)
    found: dict[str, dict[GuaranteeKey, int]] = {}
    for name in reversed(order):
        amounts = found[name] = {}
        for below in children.get(name, ()):
            for place, amount in found[below].items():
                amounts[place] = amounts.get(place, 0) + amount
        # Of several limits for a region the first counts.
        limits = {limit.region: limit for limit in reversed(quotas[name].limits) if limit.region in of_region}
        for region, limit in limits.items():
            for place, amount in _own_amounts(_by_pool(limit.guaranteed), of_region[region]):
                amounts[place] = max(amounts.get(place, 0), amount)
    return found


def _own_amounts(of_pools: Mapping[str, Amounts], keys: Iterable[GuaranteeKey]) -> Iterator[tuple[GuaranteeKey, int]]:
    """The guaranteed amounts of the requested dimensions, if they are not zero."""
    if not any(of_pools.values()):
        return
    for place in keys:
        own = _covered(of_pools.get(place.pool, {}), place.dimension)
        if not place.pool:
            own = max(own, sum(_covered(amounts, place.dimension) for key, amounts in of_pools.items() if key))
        if own:
            yield place, own


def _covered(amounts: Amounts, dimension: str) -> int:
    """The amount that counts for a dimension: `device "nvidia/gpu"` covers `device "nvidia/gpu/h100"`."""
    exact = max(0, amounts.get(dimension, 0))
    if not dimension.startswith("device "):
        return exact
    narrower = dimension[:-1] + "/"
    return max(exact, sum(max(0, number) for name, number in amounts.items() if name.startswith(narrower)))


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")
