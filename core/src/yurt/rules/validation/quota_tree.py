"""The rules between quotas: parents that exist and form no cycle, and guarantees that the ones above can keep.

A state machine decides them, on the quotas as they are when the command is applied: of two quotas that each would fit
alone, the second is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from yurt.state.quota_totals import DEPTH_MAX
from yurt.structs.quota import NodePoolLimit, QuotaLimit, QuotaResources, QuotaSpec, amounts_of

Amounts = dict[str, int]
NAMES_SHOWN: Final = 5


def tree_problems(spec: QuotaSpec, quotas: Mapping[str, QuotaSpec]) -> Iterator[str]:
    """All that is wrong with a quota among the others; `quotas` includes it."""
    assert quotas.get(spec.name) == spec, spec.name
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
    height = len(path) + _depth_below(spec.name, _children(quotas)) - 1
    if height > DEPTH_MAX:
        yield f"parent: {height} quotas from the top to the lowest below this one, at most {DEPTH_MAX} are possible"
        return
    children = _children(quotas)
    for name in path:
        yield from _sum_problems(quotas[name], quotas, children)


def _children(quotas: Mapping[str, QuotaSpec]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(quotas):
        found.setdefault(quotas[name].parent, []).append(name)
    return found


def _depth_below(name: str, children: Mapping[str, list[str]]) -> int:
    """Quotas from this one to the lowest below it. There is no cycle above it, so there is none below."""
    depth, level = 0, [name]
    while level and depth <= DEPTH_MAX:
        depth += 1
        level = [below for each in level for below in children.get(each, ())]
    return depth


def _sum_problems(
    parent: QuotaSpec, quotas: Mapping[str, QuotaSpec], children: Mapping[str, list[str]]
) -> Iterator[str]:
    """Dimensions in which the quotas directly below one are guaranteed more than it is, or than it may use."""
    below = children.get(parent.name, ())
    if not below:
        return
    for limit in parent.limits:
        for pool, dimension, amount, kind in _bounds(limit):
            own = {name: _guaranteed(name, quotas, children, (limit.region, pool, dimension)) for name in below}
            total = sum(own.values())
            if total > amount:
                shown = [f"{name} {number}" for name, number in own.items() if number]
                place = f'node_pool "{pool}": ' if pool else ""
                yield (
                    f'guaranteed: in region "{limit.region}" {place}{dimension} of the quotas below "{parent.name}" '
                    f"add up to {total} ({_listed(shown)}), above its {kind} of {amount}; lower them, or raise it"
                )


def _bounds(limit: QuotaLimit) -> Iterator[tuple[str, str, int, str]]:
    """(node pool, dimension, amount, what it is) that the quotas below may be guaranteed together."""
    guaranteed, allowed = _by_pool(limit.guaranteed), _by_pool(limit.region_limit)
    for pool in dict.fromkeys((*guaranteed, *allowed)):
        own, most = guaranteed.get(pool, {}), allowed.get(pool, {})
        for dimension in dict.fromkeys((*own, *most)):
            if own.get(dimension, 0) > 0:
                yield pool, dimension, own[dimension], "own guarantee"
            elif dimension in most:
                yield pool, dimension, max(0, most[dimension]), "limit"


def _by_pool(resources: QuotaResources | None) -> dict[str, Amounts]:
    """Amounts by node pool; "" is all pools."""
    if resources is None:
        return {}
    pools: Iterable[NodePoolLimit] = resources.node_pools
    return {"": amounts_of(resources)} | {pool.node_pool: amounts_of(pool) for pool in pools}


def _guaranteed(
    name: str, quotas: Mapping[str, QuotaSpec], children: Mapping[str, list[str]], asked: tuple[str, str, str]
) -> int:
    """What a quota is guaranteed of a dimension, itself or by the sum of those below it, whichever is more."""
    region, pool, dimension = asked
    limit = quotas[name].limit_of(region)
    of_pools = _by_pool(limit.guaranteed if limit is not None else None)
    own = _covered(of_pools.get(pool, {}), dimension)
    if not pool:
        own = max(own, sum(_covered(amounts, dimension) for key, amounts in of_pools.items() if key))
    below = sum(_guaranteed(each, quotas, children, asked) for each in children.get(name, ()))
    return max(own, below)


def _covered(amounts: Amounts, dimension: str) -> int:
    """The part of amounts that is of a dimension: `device "nvidia/gpu"` covers `device "nvidia/gpu/h100"`."""
    exact = max(0, amounts.get(dimension, 0))
    if not dimension.startswith("device "):
        return exact
    narrower = dimension[:-1] + "/"
    return max(exact, sum(max(0, number) for name, number in amounts.items() if name.startswith(narrower)))


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")
