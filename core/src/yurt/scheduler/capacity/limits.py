"""Cluster-wide limits: quotas on allocations that apply in addition to the capacity of nodes.

The scheduler computes the limits of a job once per attempt, and checks each of them before a placement or a run of
equal ones; the plan applier checks again on the newest state. Limits are pure: they derive from the state alone, and
plans in flight are counted here. Quotas (`scheduler.capacity.quotas`) are the limits that
servers have; the protocol leaves room for others, such as licences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from yurt.scheduler.capacity.in_flight import node_usages
from yurt.state.namespace_usage import NamespaceKey, NamespaceUsage, counted, namespace_key
from yurt.state.store import Snapshot
from yurt.state.usage import Usage, is_using, usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.plan import QUOTA_REFUSAL, Plan
from yurt.structs.predicates import is_server_terminal

if TYPE_CHECKING:
    from yurt.scheduler.capacity.guarantees import Guarantees


class LimitChange(msgspec.Struct, frozen=True):
    """`times` more allocations in a namespace and node pool; a negative number of them ends."""

    key: NamespaceKey
    amounts: NamespaceUsage
    times: int = 1


class Limit(Protocol):
    """One limit during planning."""

    @property
    def name(self) -> str:
        """The quota's name, which identifies the limit; evaluations blocked on it retry when some of it is freed.

        Empty for a limit that evaluations do not wait for.
        """
        ...

    def exceeded_dimensions(self, changes: Iterable[LimitChange]) -> Sequence[str]:
        """The dimensions in which changes together would exceed it: "memory exhausted (512 MB needed, 300 of 1000 MB
        left)".

        Empty when they fit. Dimensions that they do not enlarge are never lacking, so that a limit lowered below its
        usage refuses only new usage.
        """
        ...

    def fitting(self, change: LimitChange, most: int) -> int:
        """The number of times that the change fits, up to `most`."""
        ...

    def count(self, change: LimitChange) -> None:
        """Count a change; one of a namespace outside the limit has no effect."""
        ...


LimitsOf = Callable[[Snapshot, Job], Sequence[Limit]]
"""A function for the limits of a job, the innermost first: whatever frees some of a limit or changes it is an event of
all limits after it too, so that an evaluation which names the last one misses none. Whether a job has limits depends on
the job, its namespace and the specifications, never on allocations: a series of attempts asks before it lays earlier
plans over the state."""


def region_of(limits: LimitsOf) -> str:
    """The region of limits, whose guarantees apply too; "" if they have none.

    An attribute rather than a protocol: a runtime protocol check costs more than the other limits of a small attempt.
    """
    region: str = getattr(limits, "region", "")
    return region


def no_guarantees() -> Guarantees | None:
    """The `guarantees` of an attempt without guarantees."""
    return None


def no_limits(snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The `LimitsOf` of a cluster without limits."""
    return ()


def limits_now(limits: LimitsOf, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The limits of a job, reduced by plans in flight."""
    current = tuple(limits(snapshot, job))
    for plan in snapshot.ahead if current else ():
        for change in _added_by(snapshot, plan):
            count(current, change)
    return current


def _added_by(snapshot: Snapshot, plan: Plan) -> Iterable[LimitChange]:
    """The usage that a plan in flight adds; its stops free capacity only once clients have ended the allocations."""
    job = snapshot.jobs.get((plan.namespace, plan.job_id))
    key = (plan.namespace, "" if job is None else job.node_pool)
    for usage, node_ids in node_usages(snapshot, plan):
        yield LimitChange(key, counted(usage), len(node_ids))


def exceeded(limits: Iterable[Limit], changes: Sequence[LimitChange]) -> tuple[str, tuple[str, ...]] | None:
    """The first limit that the changes together would exceed, and the exceeded dimensions."""
    for limit in limits:
        dimensions = tuple(limit.exceeded_dimensions(changes))
        if dimensions:
            return limit.name, dimensions
    return None


def count(limits: Iterable[Limit], change: LimitChange) -> None:
    """Count a change against all limits."""
    for limit in limits:
        limit.count(change)


def release_of(alloc: Allocation) -> tuple[LimitChange, ...]:
    """The change of limits when a plan stops the allocation: one, or none.

    None if its client has ended it already, or if an earlier plan has stopped it: that plan released it, and it counts
    until its client confirms the end.
    """
    if not is_using(alloc) or is_server_terminal(alloc):
        return ()
    return (LimitChange(namespace_key(alloc), counted(usage_of(alloc)), -1),)


class ReclaimLimit:
    """Restricts a plan that reclaims to placements within guarantees. Evaluations do not wait for it, so its name is
    ""."""

    name = ""

    def __init__(self, guarantees: Guarantees) -> None:
        self._guarantees = guarantees

    def exceeded_dimensions(self, changes: Iterable[LimitChange]) -> Sequence[str]:
        """A reason if a placement, the first of the changes, exceeds the guarantee by more than it replaces."""
        first, *others = changes
        net = first.amounts
        for change in others:
            if change.times < 0 and change.key[0] == first.key[0]:
                net = net.plus(change.amounts, change.times)
        return ("beyond the guarantee for which the plan reclaims",) if self._guarantees.is_surplus(net) else ()

    def fitting(self, change: LimitChange, most: int) -> int:
        """All or none of placements without victims: entitled ones are placed one by one."""
        return 0 if self._guarantees.asks_reclaimed(change.amounts) else most

    def count(self, change: LimitChange) -> None:
        """No effect: the guarantees are counted elsewhere."""


class LimitCheck:
    """Checks the placements of one attempt against its job's limits; `current` has the remaining amounts."""

    def __init__(
        self,
        make: Callable[[], Sequence[Limit]],
        job: Job | None,
        guarantees: Callable[[], Guarantees | None] = no_guarantees,
    ) -> None:
        self._make = make
        self._make_guarantees = guarantees
        self.guarantees = guarantees()
        """The guarantees of others and of this job; None if no quota has one."""
        self._key = ("", "") if job is None else (job.namespace, job.node_pool)
        self.current: Sequence[Limit] = make()
        self.reached = ""
        """The name of the outermost limit that refused a placement; "" for none."""

    def note_reclaim(self, quotas: Collection[str]) -> None:
        """Record that the attempt reclaims for the guarantees of these quotas."""
        if self.guarantees is None or not quotas:
            return
        if not self.guarantees.is_reclaiming:
            self.current = (*self.current, ReclaimLimit(self.guarantees))
        self.guarantees.count_reclaim(quotas)

    def restart(self) -> None:
        """Start again without placements."""
        self.current = self._make()
        self.guarantees = self._make_guarantees()

    @property
    def is_counting(self) -> bool:
        """Whether placements and stops must be reported to this check."""
        return bool(self.current) or self.guarantees is not None

    def refuses(self, amounts: NamespaceUsage, replaced: Allocation | None = None) -> tuple[str, ...]:
        """The dimensions of a limit that one more allocation would exceed after `replaced` is stopped; empty when it
        fits."""
        refusal = self.refusal(amounts, replaced)
        return () if refusal is None else refusal[1]

    def refusal(
        self, amounts: NamespaceUsage, replaced: Allocation | None = None
    ) -> tuple[str, tuple[str, ...]] | None:
        """`refuses` with the name of the limit; None when it fits."""
        excess = self.excess(amounts, replaced)
        if excess is not None:
            self.note(excess[0])
        return excess

    def note(self, name: str) -> None:
        """Record a refusal by a limit: the evaluation of all refused placements names one limit."""
        self.reached = self.outermost(self.reached, name)

    def outermost(self, *names: str) -> str:
        """The last of some limits, which is told of the events of the others too; "" for none."""
        distinct = sorted({*names} - {""})
        if len(distinct) < 2:
            return distinct[0] if distinct else ""
        order = {limit.name: number for number, limit in enumerate(self.current)}
        return max(distinct, key=lambda name: order.get(name, -1))

    def excess(
        self, amounts: NamespaceUsage, replaced: Allocation | None, victims: Iterable[Allocation] = ()
    ) -> tuple[str, tuple[str, ...]] | None:
        """`refuses` with the name of the limit and further victims; does not record the refusal."""
        ending = (*(() if replaced is None else (replaced,)), *victims)
        back = (change for alloc in ending for change in release_of(alloc))
        return exceeded(self.current, (LimitChange(self._key, amounts), *back))

    def fitting(self, amounts: NamespaceUsage, most: int) -> int:
        """The number of further equal allocations that fit, up to `most`."""
        change = LimitChange(self._key, amounts)
        fits = min((limit.fitting(change, most) for limit in self.current), default=most)
        assert 0 <= fits <= most, (fits, most, "a limit lowers the number of placements, and not below 0")
        return fits

    def take(self, amounts: NamespaceUsage, times: int = 1) -> None:
        """Count placements."""
        count(self.current, LimitChange(self._key, amounts, times))
        if self.guarantees is not None:
            self.guarantees.count(amounts, times)

    def give_back(self, alloc: Allocation) -> None:
        """Count an allocation that the plan stops or preempts."""
        if self.guarantees is not None:
            self.guarantees.count_end(alloc)
        for change in release_of(alloc):
            count(self.current, change)


class LimitedGrants:
    """Refuses grants of nodes that exceed a limit although the group's request does not.

    The devices and the MHz of cores are known only when a node grants them. Another node may grant less of the limited
    resource, so a refusal closes one node only.
    """

    def __init__(self, check: LimitCheck, replaced: Allocation | None) -> None:
        self._check = check
        self._replaced = replaced
        self._refused: tuple[str, ...] = ()
        self.limit = ""
        """The name of the outermost limit that refused a grant; "" for none."""

    def refuses(self, usage: Usage) -> str:
        """The exhausted dimensions; empty when the grant fits."""
        return self.refuses_after(usage, ())

    def refuses_after(self, usage: Usage, victims: Iterable[Allocation]) -> str:
        """`refuses` after these victims have ended too."""
        excess = self._check.excess(counted(usage), self._replaced, victims)
        if excess is None:
            return ""
        self.limit, self._refused = self._check.outermost(self.limit, excess[0]), excess[1]
        return f"{QUOTA_REFUSAL}{excess[0] or 'guarantee'}: {', '.join(excess[1])}"

    def reached(self) -> tuple[str, ...]:
        """The excess of the last refused grant, which the check then records; empty if none was refused."""
        if self._refused:
            self._check.note(self.limit)
        return self._refused
