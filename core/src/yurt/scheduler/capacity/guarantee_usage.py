"""The usage under quotas with guarantees: that of allocations that stay, by quota and node pool.

What ends already counts as gone: else two reclaims in a row could take a borrower below its guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from yurt.state.namespace_usage import NOTHING_USED, NamespaceKey, NamespaceUsage, counted, namespace_key
from yurt.state.quota_totals import counts_in
from yurt.state.quota_tree import QuotaTree
from yurt.state.store import Changes, Snapshot
from yurt.state.usage import Usage, is_using, usage_of, usage_of_resources
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.plan import Placement, Plan
from yurt.structs.predicates import is_server_terminal

QuotaKey = tuple[str, str]
"""(quota, node pool of one of its guarantees)."""
Sums = Mapping[NamespaceKey, NamespaceUsage]
MEMO: Final = "staying usage of namespaces"


class QuotaHoldings:
    """The sums of one state; `follow` updates them with the changes of commands."""

    def __init__(self, snapshot: Snapshot, tree: QuotaTree) -> None:
        self.tree = tree
        self._sums: dict[str, dict[str, NamespaceUsage]] = {}
        """Usage by namespace and node pool."""
        for (namespace, pool), used in staying_usage(snapshot).items():
            self._sums.setdefault(namespace, {})[pool] = used
        self._by_quota: dict[QuotaKey, NamespaceUsage] = {}

    def usage(self, quota: str, pool: str) -> NamespaceUsage:
        """The usage under a quota in a node pool, or in all pools when `pool` is ""."""
        usage = self._by_quota.get((quota, pool))
        if usage is None:
            usage = NOTHING_USED
            for namespace in self.tree.members[quota]:
                for of_job, used in self._sums.get(namespace, {}).items():
                    usage = usage.plus(used) if counts_in(pool, of_job) else usage
            self._by_quota[quota, pool] = usage
        return usage

    def namespaces(self) -> set[str]:
        """The namespaces with any usage."""
        return set(self._sums)

    def runs(self, namespace: str, pool: str) -> bool:
        """Whether a namespace has staying allocations in a node pool."""
        return any(used.allocs and counts_in(pool, of_job) for of_job, used in self._sums.get(namespace, {}).items())

    def follow(self, changes: Changes, namespaces: set[str]) -> set[str]:
        """Count the changes of a command; adds its namespaces to the set, and returns the quotas that count them."""
        changed: set[str] = set()
        for change in changes:
            if change.table != "allocs":
                continue
            before, after = change.before, change.after
            was, is_now = before is not None and is_staying(before), after is not None and is_staying(after)
            if was and is_now and before.job is after.job and before.allocated_resources is after.allocated_resources:
                continue
            for alloc, times, counts in ((before, -1, was), (after, 1, is_now)):
                if counts:
                    self._count(namespace_key(alloc), counted(usage_of(alloc)), times)
                    changed.update(self.tree.chain(alloc.namespace))
                    namespaces.add(alloc.namespace)
        return changed

    def _count(self, key: NamespaceKey, amounts: NamespaceUsage, times: int) -> None:
        sums = self._sums.setdefault(key[0], {})
        sums[key[1]] = sums.get(key[1], NOTHING_USED).plus(amounts, times)
        assert sums[key[1]].allocs >= 0, (key, sums[key[1]], "an allocation leaves the sum to which it was added")
        for name in self.tree.guaranteed(key[0]):
            for part in self.tree.shares[name].guaranteed:
                used = self._by_quota.get((name, part.pool))
                if used is not None and counts_in(part.pool, key[1]):
                    self._by_quota[name, part.pool] = used.plus(amounts, times)


def add_usage(sums: dict[NamespaceKey, NamespaceUsage], key: NamespaceKey, amounts: NamespaceUsage, times: int) -> None:
    """Add a usage to the sum of a namespace's jobs of a pool."""
    sums[key] = sums.get(key, NOTHING_USED).plus(amounts, times)


def staying_usage(snapshot: Snapshot) -> Sums:
    """The usage of namespaces without ending allocations, plans in flight included."""
    stored = _stored(snapshot)
    if not snapshot.ahead:
        return stored
    usage = dict(stored)
    for plan in snapshot.ahead:
        _add_plan(usage, snapshot, plan)
    return usage


def _stored(snapshot: Snapshot) -> Sums:
    """The sums without plans in flight, cached for other attempts at the same state."""
    memo, allocs, by_namespace = snapshot.columns.nodes.lasting, snapshot.allocs, snapshot.columns.by_namespace
    cached: tuple[object, object, Sums] | None = memo.get(MEMO)
    if cached is not None and cached[0] is allocs and cached[1] is by_namespace:
        return cached[2]
    usage: dict[NamespaceKey, NamespaceUsage] = {}
    for namespace, pools in by_namespace.items():
        usage.update(((namespace, pool), used) for pool, used in pools.items())
        for alloc in allocs.each_where("stopping", namespace):
            add_usage(usage, namespace_key(alloc), counted(usage_of(alloc)), -1)
    memo[MEMO] = (allocs, by_namespace, usage)
    return usage


def _add_plan(total: dict[NamespaceKey, NamespaceUsage], snapshot: Snapshot, plan: Plan) -> None:
    """Count a plan in flight, unless it is stored."""
    if plan.placements and plan.placements[0].id in snapshot.allocs:
        return
    for key, usage in placed_usage(snapshot, plan):
        add_usage(total, key, counted(usage), 1)
    for stop in (*plan.stops, *plan.preemptions):
        alloc = snapshot.allocs.get(stop.id)
        if alloc is not None and is_staying(alloc):
            add_usage(total, namespace_key(alloc), counted(usage_of(alloc)), -1)


def placed_usage(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[NamespaceKey, Usage]]:
    """The usage of each placement of a plan, with the namespace and pool under which it counts."""
    versions: dict[int, Job | None] = {}
    for placement in plan.placements:
        job = _version(snapshot, plan, placement, versions)
        group = None if job is None else job.group(placement.task_group)
        key = (plan.namespace, "" if job is None else job.node_pool)
        yield key, usage_of_resources(placement.resources, group)


def _version(snapshot: Snapshot, plan: Plan, placement: Placement, versions: dict[int, Job | None]) -> Job | None:
    number = placement.job_version
    if number not in versions:
        versions[number] = snapshot.version(plan.namespace, plan.job_id, number)
    return versions[number]


def is_staying(alloc: Allocation) -> bool:
    """Whether an allocation uses resources and has not been asked to stop."""
    return is_using(alloc) and not is_server_terminal(alloc)
