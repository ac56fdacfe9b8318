"""Guarantees of quotas: entitlement to reclaim lent capacity, and protection from preemption.

A placement is *entitled* under a quota of its namespace's chain when the quota is guaranteed something that the
placement asks for, and stays within all of its guarantee with it. Then allocations of borrowers may be ended for it:

1. a victim counts under a quota that the entitled one does not count under, or under none, and the entitled one is not
   above the victim;
2. no quota under which only the victim counts falls below its guarantee;
3. the victim has run for its protection, so nothing is ended twice within that; the members of a gang have their age
   together;
4. it is a batch job, or a service whose namespace has a quota.

Capacity that a victim frees beyond the need belongs to no one: in a plan that reclaims, a placement that requests
guaranteed resources is entitled, or is left for the next plan, which competes for them like any other.

Rule 2 holds for preemption by priority, too. So each reclaim raises the usage within guarantees at the level of the
entitled quota, and lowers it at none as deep: between two outside events only finitely many happen, and none undoes
another (tests/scheduler/capacity/test_guarantees.py).

An ending allocation counts as gone: else two successive reclaims could take a borrower below its guarantee. All this
is a function of the state, the plan and the time that the plan names; the plan check and `apply` use it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.guarantee_usage import (
    QuotaHoldings,
    QuotaKey,
    add_usage,
    is_staying,
    placed_usage,
)
from yurt.scheduler.capacity.reclaim_amounts import reclaim_amounts
from yurt.state.namespace_usage import NOTHING_USED, NamespaceKey, NamespaceUsage, counted, namespace_key
from yurt.state.quota_totals import counts_in
from yurt.state.quota_tree import GuaranteedPart, QuotaTree, amount_in, most_in, tree_of
from yurt.state.store import Snapshot
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.plan import QUOTA_REFUSAL, AllocStop, Plan
from yurt.structs.status import JOB_BATCH, JOB_SERVICE, JOB_SYSBATCH

SURPLUS: Final = "the plan reclaims, and this placement is beyond the guarantee"
RECLAIMABLE: Final = (JOB_BATCH, JOB_SYSBATCH)
"""Job types whose allocations are reclaimed whether or not their namespace has a quota."""


class Guarantees:
    """The usage under guarantees while a plan is made or checked."""

    def __init__(
        self,
        snapshot: Snapshot,
        tree: QuotaTree,
        key: NamespaceKey,
        *,
        now: int,
        holdings: QuotaHoldings | None = None,
    ) -> None:
        """`key`: the namespace and node pool of the job to place; `holdings`: the sums of the snapshot, if computed
        already."""
        self.tree = tree
        self._key = key
        self._now = now
        self._snapshot = snapshot
        self._holdings = holdings
        self._delta: dict[NamespaceKey, NamespaceUsage] = {}
        """The sum of all changes counted before the holdings were computed."""
        self._usage: dict[QuotaKey, NamespaceUsage] = {}
        self._ended: set[str] = set()
        self._gangs: dict[tuple[str, str, str], tuple[Allocation, ...]] = {}
        self._reclaiming: set[str] = set()

    def count(self, amounts: NamespaceUsage, times: int = 1) -> None:
        """Count placements of the job."""
        self._count(self._key, amounts, times)

    def count_end(self, alloc: Allocation, sign: int = 1) -> None:
        """Count the end of an allocation, or undo that with `sign` -1."""
        if not is_staying(alloc):
            return
        assert sign > 0 or alloc.id in self._ended, (alloc.id, "only a counted end is undone")
        self._count(namespace_key(alloc), counted(usage_of(alloc)), -sign)
        if sign > 0:
            self._ended.add(alloc.id)
        else:
            self._ended.discard(alloc.id)

    def is_ended(self, alloc: Allocation) -> bool:
        """Whether the end of the allocation was counted already."""
        return alloc.id in self._ended

    def count_reclaim(self, quotas: Iterable[str]) -> None:
        """Record that the plan reclaims for the guarantees of these quotas."""
        self._reclaiming.update(quotas)

    def look_as(self, key: NamespaceKey) -> None:
        """Answer for a job of another namespace or node pool from now on; the counts stay."""
        self._key = key

    def amounts_of(self, ask: GroupAsk) -> NamespaceUsage:
        """The amounts that a guarantee may have to cover for one allocation of the job's pool."""
        return reclaim_amounts(ask, self._snapshot, self._key[1])

    def entitled(self, amounts: NamespaceUsage) -> tuple[str, ...]:
        """The quotas of the job's chain that stay within their guarantee with one more placement, the lowest first.

        Of a request that names no model, a guarantee of a model counts as met: what the node grants decides.
        """
        return tuple(name for name in self.tree.guaranteed(self._key[0]) if self._is_within(name, amounts))

    def asks_reclaimed(self, amounts: NamespaceUsage) -> bool:
        """Whether a placement requests a dimension guaranteed to the quotas for which the plan reclaims."""
        return any(
            counts_in(part.pool, self._key[1]) and most_in(amounts, dimension) > 0
            for name in self._reclaiming
            if name in self.tree.shares
            for part in self.tree.shares[name].guaranteed
            for dimension, _ in part.amounts
        )

    def is_surplus(self, amounts: NamespaceUsage) -> bool:
        """Whether a placement would take reclaimed capacity without being within a guarantee."""
        return self.asks_reclaimed(amounts) and not self.entitled(amounts)

    @property
    def is_reclaiming(self) -> bool:
        """Whether the plan reclaims anything."""
        return bool(self._reclaiming)

    def entitled_against(self, entitled: Iterable[str], namespace: str) -> str:
        """The lowest of these quotas under which a namespace does not count; "" for none."""
        if self._key[0] == namespace:
            return ""
        others = self.tree.chain(namespace)
        return next((name for name in entitled if name not in others), "")

    def is_reclaimable(self, alloc: Allocation) -> bool:
        """Whether the allocation may be reclaimed by its job type, namespace and age."""
        return self.is_lendable(alloc) and self.protected_until(alloc) <= self._now

    def is_lendable(self, alloc: Allocation) -> bool:
        """Whether the allocation may be reclaimed after its protection."""
        return is_lendable(self.tree, alloc)

    def protected_until(self, alloc: Allocation) -> int:
        """The end of the allocation's protection; a start far in the future, by a wrong clock, protects nothing."""
        protection = self.tree.protection(alloc.namespace)
        started = max((member.create_time for member in self.bundle_of(alloc)), default=alloc.create_time)
        return started + protection if started - self._now < protection else 0

    def bundle_of(self, alloc: Allocation) -> tuple[Allocation, ...]:
        """The allocations that end together: this one, or its gang if that would fall below its minimum."""
        group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
        if group is None or group.gang is None:
            return (alloc,)
        key = (alloc.namespace, alloc.job_id, alloc.task_group)
        members = self._gangs.get(key)
        if members is None:
            rows = self._snapshot.allocs_of_job(alloc.namespace, alloc.job_id)
            members = self._gangs[key] = tuple(
                row for row in rows if row.task_group == alloc.task_group and is_staying(row)
            )
        remaining = tuple(row for row in members if row.id not in self._ended or row.id == alloc.id)
        return remaining if len(remaining) - 1 < group.least else (alloc,)

    def protects(self, namespace: str) -> bool:
        """Whether a namespace has a guarantee that does not include the job."""
        own = self.tree.chain(self._key[0])
        return any(name not in own for name in self.tree.guaranteed(namespace))

    def keeps_guarantees(self, alloc: Allocation) -> bool:
        """Whether all quotas under which only the allocation counts, and not the job, keep their guarantees without
        it."""
        if not self.protects(alloc.namespace):
            return True
        own, lost, pool = self.tree.chain(self._key[0]), counted(usage_of(alloc)), namespace_key(alloc)[1]
        return all(
            self._keeps(name, part, lost)
            for name in self.tree.guaranteed(alloc.namespace)
            if name not in own
            for part in self.tree.shares[name].guaranteed
            if counts_in(part.pool, pool)
        )

    def _keeps(self, name: str, part: GuaranteedPart, lost: NamespaceUsage) -> bool:
        """Whether a quota keeps a part of its guarantee without these amounts."""
        usage = self._usage_of(name, part.pool)
        less = ((amount_in(lost, dimension), dimension, amount) for dimension, amount in part.amounts)
        return all(amount_in(usage, dimension) - each >= amount for each, dimension, amount in less if each)

    def _is_within(self, name: str, amounts: NamespaceUsage) -> bool:
        """Whether a quota stays within its guarantee, and the guarantee covers a part of these amounts."""
        is_covered = False
        for part in self.tree.shares[name].guaranteed:
            if not counts_in(part.pool, self._key[1]):
                continue
            for dimension, amount in part.amounts:
                most = most_in(amounts, dimension)
                if most <= 0:
                    continue
                fits = most_in(self._usage_of(name, part.pool), dimension) + most <= amount
                if not fits and amount_in(amounts, dimension):
                    return False
                is_covered = is_covered or fits
        return is_covered

    def _usage_of(self, name: str, pool: str) -> NamespaceUsage:
        """The usage under a quota in a node pool, without ending allocations."""
        usage = self._usage.get((name, pool))
        if usage is None:
            if self._holdings is None:
                self._holdings = QuotaHoldings(self._snapshot, self.tree)
                for key, used in self._delta.items():
                    self._add(key, used, 1)
                return self._usage_of(name, pool)
            usage = self._usage[name, pool] = self._holdings.usage(name, pool)
        return usage

    def _count(self, key: NamespaceKey, amounts: NamespaceUsage, times: int) -> None:
        if self._holdings is not None:
            self._add(key, amounts, times)
        elif self.tree.guaranteed(key[0]):
            add_usage(self._delta, key, amounts, times)

    def _add(self, key: NamespaceKey, amounts: NamespaceUsage, times: int) -> None:
        for name in self.tree.guaranteed(key[0]):
            for part in self.tree.shares[name].guaranteed:
                if counts_in(part.pool, key[1]):
                    self._usage[name, part.pool] = self._usage_of(name, part.pool).plus(amounts, times)


def is_lendable(tree: QuotaTree, alloc: Allocation) -> bool:
    """Whether the allocation's job type and namespace permit reclaiming it."""
    job = alloc.job
    if job is None or not is_staying(alloc):
        return False
    return job.type in RECLAIMABLE or (job.type == JOB_SERVICE and tree.of(alloc.namespace) is not None)


def guarantees_for(snapshot: Snapshot, region: str, job: Job | None, now: int) -> Guarantees | None:
    """The guarantees of a region for an attempt at a job; None if the region has none."""
    tree = tree_of(snapshot, region) if region and job is not None else None
    return None if tree is None or job is None else Guarantees(snapshot, tree, (job.namespace, job.node_pool), now=now)


def guarantee_refusals(snapshot: Snapshot, plan: Plan, tree: QuotaTree) -> dict[str, str]:
    """Placements that preempt protected or guaranteed allocations, by id, with the reason; earlier ones in the plan
    take precedence.

    A stop whose placement is in another part of the plan is refused under the id of that placement.
    """
    victims: dict[str, list[AllocStop]] = {}
    for stop in plan.preemptions:
        victims.setdefault(stop.preempted_by, []).append(stop)
    job = snapshot.jobs.get((plan.namespace, plan.job_id))
    guarantees = Guarantees(snapshot, tree, (plan.namespace, "" if job is None else job.node_pool), now=plan.now)
    for stop in plan.stops:
        alloc = snapshot.allocs.get(stop.id)
        if alloc is not None and not guarantees.is_ended(alloc):
            guarantees.count_end(alloc)
    refused: dict[str, str] = {}
    for placement, (_, usage) in zip(plan.placements, placed_usage(snapshot, plan), strict=True):
        amounts = counted(usage)
        reason = _refusal(guarantees, snapshot, victims.pop(placement.id, ()), amounts)
        if reason:
            refused[placement.id] = f"{QUOTA_REFUSAL}guarantee: {reason}"
            continue
        guarantees.count(amounts)
    for placement_id, stops in victims.items():
        reason = _refusal(guarantees, snapshot, stops, NOTHING_USED)
        if reason:
            refused[placement_id] = f"{QUOTA_REFUSAL}guarantee: {reason}"
    return refused


def _refusal(guarantees: Guarantees, snapshot: Snapshot, stops: Sequence[AllocStop], amounts: NamespaceUsage) -> str:
    """The reason why a placement must not be made, or must not preempt these; without one, they count as ended."""
    if not stops and guarantees.is_reclaiming and guarantees.is_surplus(amounts):
        return SURPLUS
    entitled = guarantees.entitled(amounts) if stops else ()
    ended: list[Allocation] = []
    reclaiming: set[str] = set()
    for stop in stops:
        alloc = snapshot.allocs.get(stop.id)
        # A missing or ending allocation loses nothing. The quota for which it was to be reclaimed may be gone too.
        if alloc is None or not is_staying(alloc) or guarantees.is_ended(alloc):
            continue
        reason = _refusal_of(guarantees, stop, alloc, entitled)
        if reason:
            for each in ended:
                guarantees.count_end(each, -1)
            return reason
        guarantees.count_end(alloc)
        ended.append(alloc)
        if stop.reclaimed_for:
            reclaiming.add(stop.reclaimed_for)
    guarantees.count_reclaim(reclaiming)
    return ""


def _refusal_of(guarantees: Guarantees, stop: AllocStop, alloc: Allocation, entitled: Sequence[str]) -> str:
    quota = stop.reclaimed_for
    if quota and quota not in entitled:
        return f'quota "{quota}" is not within its guarantee any more, so it reclaims nothing'
    if quota and not guarantees.entitled_against((quota,), alloc.namespace):
        return f'allocation "{alloc.id}" counts under quota "{quota}" too'
    if quota and not guarantees.is_reclaimable(alloc):
        return f'allocation "{alloc.id}" of job "{alloc.job_id}" is protected'
    if not guarantees.keeps_guarantees(alloc):
        return f'allocation "{alloc.id}" of namespace "{alloc.namespace}" is within a guarantee'
    return ""
