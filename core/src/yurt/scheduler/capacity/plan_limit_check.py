"""The check of a plan against the limits of its job: the last part of the plan check.

A plan is accepted or refused by node, and so is what it changes of a limit: the placements of a node come together with
the stops there that release capacity. A node whose change no longer fits is refused with a reason; capacity released on
nodes without placements is free for all others. Refusing one node may withdraw what another node needs (a gang loses a
member, and with it what the member replaced), so the caller checks the rest again; if that still exceeds the limit,
every node that grows is refused (`is_final`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from yurt.scheduler.capacity.limits import LimitChange, LimitsOf, count, exceeded, limits_now, release_of
from yurt.sdk.value import replace
from yurt.state.namespace_usage import counted, namespace_key
from yurt.state.store import Snapshot
from yurt.state.usage import Usage, usage_of
from yurt.structs.plan import QUOTA_REFUSAL, InPlaceUpdate, Placement, Plan

PASSES_MAX = 3
"""The maximum number of passes over nodes that did not fit at first, since others may have released enough."""


class PlanLimits:
    """The changes of a plan to the limits of its job, by node."""

    def __init__(
        self, snapshot: Snapshot, plan: Plan, limits: LimitsOf, *, usage_of: Callable[[Placement], Usage]
    ) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._usage_of = usage_of
        self._pools: dict[int, str] = {}
        job = snapshot.jobs.get((plan.namespace, plan.job_id))
        has_growth = bool(plan.placements or plan.in_place)
        self._limits = limits_now(limits, snapshot, job) if job is not None and has_growth else ()
        self._ended_ahead = self._count_ended_ahead() if self._limits else frozenset()

    def _count_ended_ahead(self) -> frozenset[str]:
        """Count as released what this plan stops and a plan in flight stops before it; returns these allocations.

        The plan in flight took what they release. Counted as a release of this plan too, its own growth would look like
        a decrease, which is allowed above a limit.
        """
        ahead = {stop.id for plan in self._snapshot.ahead for stop in (*plan.stops, *plan.preemptions)}
        found = frozenset(ahead.intersection(stop.id for stop in (*self._plan.stops, *self._plan.preemptions)))
        for alloc_id in sorted(found):
            alloc = self._snapshot.allocs.get(alloc_id)
            self._count(list(release_of(alloc)) if alloc is not None else [])
        return found

    def refusals(self, *, is_final: bool = False) -> dict[str, str]:
        """The nodes whose part of the plan exceeds a limit, with the reason; with `is_final` all nodes whose usage
        grows."""
        if not self._limits:
            return {}
        changes = self._by_node()
        over = exceeded(self._limits, [change for of_node in changes.values() for change in of_node])
        if over is None:
            return {}
        growing = {node_id: parts for node_id, parts in changes.items() if node_id in self._growing()}
        if is_final:
            return dict.fromkeys(growing, f"{QUOTA_REFUSAL}{over[0]}: {', '.join(over[1])}")
        for node_id, parts in changes.items():
            if node_id not in growing:
                self._count(parts)
        return self._refused_of(growing)

    def _refused_of(self, growing: dict[str, list[LimitChange]]) -> dict[str, str]:
        """The nodes that no longer fit; those that release something are checked first."""
        waiting = sorted(growing, key=lambda node_id: all(change.times > 0 for change in growing[node_id]))
        found: dict[str, str] = {}
        for _ in range(PASSES_MAX):
            found = {}
            for node_id in waiting:
                over = exceeded(self._limits, growing[node_id])
                if over is None:
                    self._count(growing[node_id])
                else:
                    found[node_id] = f"{QUOTA_REFUSAL}{over[0]}: {', '.join(over[1])}"
            if len(found) in (0, len(waiting)):
                break
            waiting = list(found)
        return found

    def _growing(self) -> set[str]:
        plan = self._plan
        return {placement.node_id for placement in plan.placements} | {update.node_id for update in plan.in_place}

    def _count(self, changes: list[LimitChange]) -> None:
        for change in changes:
            count(self._limits, change)

    def _by_node(self) -> dict[str, list[LimitChange]]:
        """The changes of each node; consecutive equal placements on a node become one."""
        plan, allocs = self._plan, self._snapshot.allocs
        found: dict[str, list[LimitChange]] = defaultdict(list)
        last: tuple[str, Usage] | None = None
        for placement in plan.placements:
            usage = self._usage_of(placement)
            changes = found[placement.node_id]
            if last is not None and last[0] == placement.node_id and last[1] is usage:
                changes[-1] = replace(changes[-1], times=changes[-1].times + 1)
            else:
                changes.append(LimitChange((plan.namespace, self._pool(placement.job_version)), counted(usage)))
            last = (placement.node_id, usage)
        for update in plan.in_place:
            found[update.node_id].extend(self._moved(update))
        for stop in (*plan.stops, *plan.preemptions):
            alloc = allocs.get(stop.id)
            if alloc is not None and stop.id not in self._ended_ahead:
                found[stop.node_id].extend(release_of(alloc))
        return found

    def _moved(self, update: InPlaceUpdate) -> tuple[LimitChange, ...]:
        """The usage added by an in-place update: none, unless resources or the node pool change."""
        alloc = self._snapshot.allocs.get(update.id)
        plan = self._plan
        job = self._snapshot.version(plan.namespace, plan.job_id, update.job_version)
        if alloc is None or job is None or not release_of(alloc):
            return ()
        after = replace(alloc, job=job, allocated_resources=update.resources or alloc.allocated_resources)
        used = usage_of(after)
        if namespace_key(after) == namespace_key(alloc) and used == usage_of(alloc):
            return ()
        return (*release_of(alloc), LimitChange(namespace_key(after), counted(used)))

    def _pool(self, version: int) -> str:
        """The node pool of a version of the job."""
        pool = self._pools.get(version)
        if pool is None:
            job = self._snapshot.version(self._plan.namespace, self._plan.job_id, version)
            pool = self._pools[version] = "" if job is None else job.node_pool
        return pool
