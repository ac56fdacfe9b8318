"""The plan check: finds the parts of a plan that still fit the newest state (docs/explanation/plan-check.md).

A plan is checked node by node; what a node refuses is dropped whole, with everything else of the plan for that node.
Evictions always hold. With `all_at_once` one refusal drops everything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from functools import cached_property

import msgspec
import numpy as np

from yurt.scheduler.capacity.ask import CLAIMED
from yurt.scheduler.capacity.limits import LimitsOf, no_limits, region_of
from yurt.scheduler.capacity.ports import reserved_bits
from yurt.scheduler.capacity.view import DIMENSIONS, MAX_ALLOCS
from yurt.scheduler.devices.overbooking import overbooked
from yurt.sdk.value import replace
from yurt.state.arrays import tally
from yurt.state.columns import ALLOCS, IS_NODE, IS_READY
from yurt.state.exclusive_resources import NOTHING_IN_USE, ExclusiveResources, with_usage
from yurt.state.host_volumes import host_requests, refusal_of_node
from yurt.state.store import Snapshot
from yurt.state.usage import PortKey, Usage, is_using, usage_of, usage_of_resources
from yurt.structs.deployment import Deployment
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node
from yurt.structs.plan import JOB_REFUSAL, AllocStop, AttributeUpdate, InPlaceUpdate, Placement, Plan, PlanResult
from yurt.structs.predicates import alloc_index, is_ready
from yurt.structs.status import (
    CLIENT_LOST,
    CLIENT_UNKNOWN,
    ELIGIBLE,
    NODE_DISCONNECTED,
    NODE_DOWN,
    NODE_READY,
    NODE_UNRESPONSIVE,
)
from yurt.structs.volumes.request import VolumeRequest, source_of

CHECKED_EACH = 64
"""On one in this number of states, one node of the fast path is also checked exactly."""
MANY = 32
"""From this number of placements on, nodes with capacity for all are found by one array operation."""


class _NodePart(msgspec.Struct, frozen=True):
    """The part of a plan on one node."""

    placements: list[Placement]
    in_place: list[InPlaceUpdate]
    attributes: list[AttributeUpdate]
    leaving: list[AllocStop]


def check_plan(snapshot: Snapshot, plan: Plan, limits: LimitsOf = no_limits) -> PlanResult:
    """The plan without the parts that no longer fit; with a `refresh_index` if parts were dropped."""
    parts: dict[str, _NodePart] = defaultdict(lambda: _NodePart([], [], [], []))
    checker = _Checker(snapshot, plan)
    # The fast path accepts; it never refuses. Nodes that it is not sure of are checked exactly, one by one.
    roomy = checker.roomy() if len(plan.placements) >= MANY else frozenset()
    for placement in plan.placements:
        # All of a node or nothing of it: a node that is not surely roomy has all its placements checked together.
        if placement.node_id not in roomy:
            parts[placement.node_id].placements.append(placement)
    for update in plan.in_place:
        parts[update.node_id].in_place.append(update)
    for attribute in plan.attributes:
        parts[attribute.node_id].attributes.append(attribute)
    for stop in (*plan.stops, *plan.preemptions):
        parts[stop.node_id].leaving.append(stop)
    rejected: dict[str, str] = {}
    for node_id, part in parts.items():
        if part.placements or part.in_place or part.attributes:
            reason = checker.refusal(node_id, part)
            if reason:
                rejected[node_id] = reason
    # Limits last: only placements that their nodes accept count against them, and only their stops give back.
    accepted = _within_limits_and_guarantees(checker, _accepted(checker, rejected), limits, rejected)
    if snapshot.index % CHECKED_EACH == 0 and roomy:
        checker.check_roomy(plan.placements[0].node_id, roomy)
    if not rejected:
        return PlanResult(accepted=accepted, alloc_index=snapshot.allocs.index)
    # The worker plans again on a state that is at least as new as this one, which made the nodes refuse.
    refresh = max(snapshot.nodes.index, snapshot.allocs.index, snapshot.jobs.index, 1)
    assert rejected.keys().isdisjoint([placement.node_id for placement in accepted.placements])
    assert not (plan.all_at_once and accepted.placements), "all at once means that one refusal drops everything (B6)"
    assert _keeps_gangs(accepted), "a gang is accepted whole or not at all"
    assert set(accepted.stops) <= set(plan.stops), "a check frees no more than the plan does"
    dropped = {each.id for each in plan.placements} - {each.id for each in accepted.placements}
    assert dropped.isdisjoint([stop.preempted_by for stop in accepted.preemptions]), (
        "dropped placements have no victims"
    )
    return PlanResult(
        accepted=accepted,
        refresh_index=refresh,
        alloc_index=snapshot.allocs.index,
        rejected_nodes=dict(sorted(rejected.items())),
    )


def _accepted(checker: _Checker, rejected: dict[str, str]) -> Plan:
    """The plan without the parts that nodes reject; adds the nodes that reject their part without stops made for
    another node."""
    plan = checker.plan
    while rejected:
        if plan.all_at_once or checker.job_refusal:
            return _nothing(plan)
        # Refusing nodes first, then gangs: what the nodes refused may leave a gang below its minimum.
        accepted = _whole_gangs(_without(plan, rejected))
        short = checker.refusals_without_stops(accepted)
        if not short:
            return accepted
        assert rejected.keys().isdisjoint(short), "what a node has rejected is not placed there"
        rejected |= short
    return plan


def _within_limits_and_guarantees(
    checker: _Checker, accepted: Plan, limits: LimitsOf, rejected: dict[str, str]
) -> Plan:
    """The accepted plan within limits and guarantees, checked in turn: losing parts for one may free less for the
    other."""
    region = region_of(limits) if checker.plan.preemptions else ""
    is_limited = _is_limited(checker.snapshot, checker.plan, limits)
    while True:
        before = len(rejected)
        if region:
            accepted = _within_guarantees(checker, accepted, region, rejected)
        if is_limited:
            accepted = _within_limits(checker, accepted, limits, rejected)
        if len(rejected) == before or not (region and is_limited):
            return accepted


def _is_limited(snapshot: Snapshot, plan: Plan, limits: LimitsOf) -> bool:
    """Whether the plan's job has limits at all."""
    job = snapshot.jobs.get((plan.namespace, plan.job_id)) if limits is not no_limits else None
    return job is not None and bool(limits(snapshot, job))


def _within_guarantees(checker: _Checker, accepted: Plan, region: str, rejected: dict[str, str]) -> Plan:
    """The accepted plan without the nodes on which it preempts guaranteed or protected allocations.

    The remaining plan names the region even if no quota has a guarantee: `apply` checks again on its own state.
    """
    from yurt.scheduler.capacity.guarantees import guarantee_refusals
    from yurt.state.quota_tree import tree_of

    accepted = replace(accepted, guarantees_of=region) if accepted.preemptions else accepted
    tree = tree_of(checker.snapshot, region)
    if tree is None:
        return accepted
    while refused := guarantee_refusals(checker.snapshot, accepted, tree):
        nodes = {placement.node_id: placement.id for placement in accepted.placements if placement.id in refused}
        assert nodes, (refused, "a plan that is whole has the placement of each victim")
        rejected |= {node_id: refused[placement_id] for node_id, placement_id in nodes.items()}
        accepted = _accepted(checker, rejected)
    return replace(accepted, guarantees_of=region) if accepted.preemptions else accepted


def _within_limits(checker: _Checker, accepted: Plan, limits: LimitsOf, rejected: dict[str, str]) -> Plan:
    """The accepted plan without the nodes that exceed a limit, which are added to the rejected ones."""
    from yurt.scheduler.capacity.plan_limit_check import PlanLimits

    beyond = PlanLimits(checker.snapshot, accepted, limits, usage_of=checker.usage).refusals()
    while beyond:
        rejected |= beyond
        accepted = _accepted(checker, rejected)
        beyond = PlanLimits(checker.snapshot, accepted, limits, usage_of=checker.usage).refusals(is_final=True)
    return accepted


class _Checker:
    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self._usages: dict[tuple[int, int, str], Usage] = {}
        """Usages by identity of the granted resources, which placements of a group share; the plan keeps them alive."""
        self._known_versions: dict[int, bool] = {}
        self._mounted: dict[tuple[int, str], tuple[VolumeRequest, ...]] = {}

    def roomy(self) -> frozenset[str]:
        """Nodes that certainly have capacity for all placements of the plan and need no check of exclusive resources.

        What the plan stops there is not counted as free, so other nodes may have room too.
        """
        plan, columns, rows_of = self.plan, self.snapshot.columns, self.snapshot.columns.rows.get
        if self.job_refusal or not self._versions_known():
            return frozenset()
        doubtful = {update.node_id for update in plan.in_place} | {update.node_id for update in plan.attributes}
        allocs = self.snapshot.allocs
        if allocs.count_where("job", (plan.namespace, plan.job_id)):
            existing = set(allocs.present([placement.id for placement in plan.placements]))
            doubtful.update(placement.node_id for placement in plan.placements if placement.id in existing)
        # Stops are ignored here: without them usage is an upper bound, so a node that fits is sure to fit.
        used, offered = columns.used.copy(), columns.nodes.offered
        touched = np.zeros(len(used), np.bool_)
        for usage, placements in self._by_usage():
            node_ids = [placement.node_id for placement in placements]
            if usage.is_exclusive or self._host_requests(placements[0]):
                doubtful.update(node_ids)
                continue
            rows, times = tally(np.array([row for row in map(rows_of, node_ids) if row is not None], np.int64))
            used[rows] += times[:, None] * np.array(usage.amounts, np.int64)
            touched[rows] = True
        fits = touched & (offered[:, IS_NODE] > 0) & (offered[:, IS_READY] > 0)
        for column, _ in DIMENSIONS:
            fits &= used[:, column] <= offered[:, column]
        fits &= (offered[:, ALLOCS] == 0) | (used[:, ALLOCS] <= offered[:, ALLOCS])
        ids = columns.nodes.ids
        return frozenset([ids[row] for row in fits.nonzero()[0].tolist()]) - doubtful

    def check_roomy(self, node_id: str, roomy: Container[str]) -> None:
        """Assert that the exact check accepts the same as the fast path, on one node."""
        node = self.snapshot.nodes.get(node_id)
        if node is None or node_id not in roomy:
            return
        placements = [placement for placement in self.plan.placements if placement.node_id == node_id]
        reason = self._overflow(node, _NodePart(placements, [], [], []))
        assert not reason, (node_id, reason, "the fast path takes no more than the exact one")

    def _by_usage(self) -> list[tuple[Usage, list[Placement]]]:
        """The placements in order, grouped by shared usage."""
        found: list[tuple[Usage, list[Placement]]] = []
        last: Placement | None = None
        for placement in self.plan.placements:
            if (
                last is None
                or placement.resources is not last.resources
                or placement.task_group != last.task_group
                or placement.job_version != last.job_version
            ):
                last = placement
                found.append((self.usage(placement), []))
            found[-1][1].append(placement)
        return found

    def _versions_known(self) -> bool:
        plan = self.plan
        versions = {placement.job_version for placement in plan.placements}
        return all(self.snapshot.version(plan.namespace, plan.job_id, version) is not None for version in versions)

    def refusal(self, node_id: str, part: _NodePart) -> str:
        """The reason why the node refuses its part; "" when it accepts."""
        node = self.snapshot.nodes.get(node_id)
        refusal = self._stale(part) or self._attributes_refusal(node, part)
        if refusal or not (part.placements or part.in_place):
            return refusal
        if node is None:
            return "node does not exist"
        if node.status != NODE_READY:
            return "node is not ready for placements"
        if not part.placements:
            return ""
        if node.scheduling_eligibility != ELIGIBLE or not is_ready(node):
            return "node is not eligible"
        return self._overflow(node, part) or self._withdrawn(node, part)

    def refusals_without_stops(self, accepted: Plan) -> dict[str, str]:
        """The nodes that refuse their placements because the accepted plan stops less than the whole plan.

        A gang ends on many nodes for one placement; without that, what counted on its capacity no longer fits.
        """
        stops = (*accepted.stops, *accepted.preemptions)
        left = {stop.id for stop in stops}
        short = {stop.node_id for stop in (*self.plan.stops, *self.plan.preemptions) if stop.id not in left}
        parts = {node_id: _NodePart([], [], [], []) for node_id in short}
        for placement in accepted.placements if parts else ():
            if placement.node_id in parts:
                parts[placement.node_id].placements.append(placement)
        for stop in stops if parts else ():
            if stop.node_id in parts:
                parts[stop.node_id].leaving.append(stop)
        refusals = ((node_id, self.refusal(node_id, part)) for node_id, part in parts.items() if part.placements)
        return {node_id: reason for node_id, reason in refusals if reason}

    @cached_property
    def job_refusal(self) -> str:
        """The reason if the job was stopped or purged since the plan was made; "" when it was not.

        One that was purged and registered again begins with the same version numbers: the plan is not about these.
        """
        job = self.snapshot.jobs.get((self.plan.namespace, self.plan.job_id))
        if job is None or job.stop:
            return f"{JOB_REFUSAL}is stopped"
        is_another = 0 < self.plan.snapshot_index < job.create_index
        return f"{JOB_REFUSAL}was purged and registered again" if is_another else ""

    def _stale(self, part: _NodePart) -> str:
        """A reason if the part updates a deleted allocation, or places a duplicate id, a stopped job or a missing
        version of it."""
        allocs, plan = self.snapshot.allocs, self.plan
        changed = [u.id for u in part.in_place] + [u.id for u in part.attributes]
        if any(alloc_id not in allocs for alloc_id in changed):
            return "allocation does not exist"
        for placement in part.placements:
            if placement.id in allocs:
                return "allocation exists already"
            if self.job_refusal:
                return self.job_refusal
            version = placement.job_version
            if version not in self._known_versions:
                job = self.snapshot.version(plan.namespace, plan.job_id, version)
                self._known_versions[version] = job is not None
            if not self._known_versions[version]:
                return f"{JOB_REFUSAL}version does not exist"
        return ""

    def _attributes_refusal(self, node: Node | None, part: _NodePart) -> str:
        marks = [update.client_status for update in part.attributes if update.client_status is not None]
        if not marks or node is None:
            return ""
        if node.status not in NODE_UNRESPONSIVE and CLIENT_UNKNOWN in marks:
            return "node is in contact again"
        if node.status == NODE_DISCONNECTED and any(mark != CLIENT_UNKNOWN for mark in marks):
            return "node is disconnected and contains invalid updates"
        if node.status == NODE_DOWN and any(mark not in (CLIENT_UNKNOWN, CLIENT_LOST) for mark in marks):
            return "node is down and contains invalid updates"
        return ""

    def _overflow(self, node: Node, part: _NodePart) -> str:
        """The first exhausted dimension, in the order of docs/explanation/plan-check.md."""
        columns = self.snapshot.columns
        row = columns.rows.get(node.id)
        assert row is not None
        used = columns.used_on(row)
        offered: list[int] = columns.nodes.offered[row].tolist()
        in_use = columns.in_use.get(node.id, NOTHING_IN_USE)
        # Stops on the node are applied before placements: a replacement may take over the ports and devices of the
        # allocation that it replaces.
        for stop in part.leaving:
            alloc = self.snapshot.allocs.get(stop.id)
            if alloc is not None and alloc.node_id == node.id and is_using(alloc):
                in_use = _add(used, in_use, usage_of(alloc), -1)
        coming = [self.usage(placement) for placement in part.placements]
        for usage in coming:
            in_use = _add(used, in_use, usage, 1)
        # Cheap and frequent reasons first; operators see the first one found in refused plans.
        if 0 < offered[ALLOCS] < used[ALLOCS]:
            return MAX_ALLOCS
        exclusive = [usage for usage in coming if usage.is_exclusive]
        if _is_shared(in_use, exclusive, "core"):
            return "cores"
        for column, name in DIMENSIONS:
            if used[column] > offered[column]:
                return name
        if not exclusive:
            return ""
        return _collision(node, in_use, exclusive) or self._unusable_devices(node, part)

    def _unusable_devices(self, node: Node, part: _NodePart) -> str:
        """The reason why a device of the placements may not be used by now: since the plan was made its node may have
        reported a fault, or a trial."""
        from yurt.scheduler.devices.unusable import unusable_device

        for placement in part.placements:
            devices = self.usage(placement).devices
            reason = devices and unusable_device(node, devices, self._group(placement))
            if reason:
                return reason
        return ""

    def _withdrawn(self, node: Node, part: _NodePart) -> str:
        """The reason why the node lacks a host volume for its placements; "" when it has them all.

        `apply` decides the same again (`yurt.fsm.host_volumes`); here only this node is refused, not the whole plan.
        """
        namespace, volume_of = self.plan.namespace, self.snapshot.host_volumes.get
        for placement in part.placements:
            for request in self._host_requests(placement):
                source = source_of(request, alloc_index(placement.name))
                reason = refusal_of_node(node, request, source=source, namespace=namespace, volume_of=volume_of)
                if reason:
                    return reason
        return ""

    def _host_requests(self, placement: Placement) -> tuple[VolumeRequest, ...]:
        """The host volumes that the placement mounts; cached by group."""
        key = (placement.job_version, placement.task_group)
        requests = self._mounted.get(key)
        if requests is None:
            group = self._group(placement)
            requests = self._mounted[key] = () if group is None else host_requests(group)
        return requests

    def _group(self, placement: Placement) -> TaskGroup | None:
        job = self.snapshot.version(self.plan.namespace, self.plan.job_id, placement.job_version)
        return None if job is None else job.group(placement.task_group)

    def usage(self, placement: Placement) -> Usage:
        """The usage of a placement; cached for equal resources."""
        key = (id(placement.resources), placement.job_version, placement.task_group)
        cached = self._usages.get(key)
        if cached is None:
            cached = self._usages[key] = usage_of_resources(placement.resources, self._group(placement))
        return cached


def _collision(node: Node, in_use: ExclusiveResources, exclusive: list[Usage]) -> str:
    """The first port, device or volume that the placements may not have on the node."""
    if _is_shared(in_use, exclusive, "port") or _takes_reserved(node, exclusive):
        return "reserved alloc port collision"
    if _is_shared(in_use, exclusive, "device"):
        return "device oversubscribed"
    booked = overbooked(node, in_use.devices, [device for usage in exclusive for device in usage.devices])
    return booked or (CLAIMED if _is_shared(in_use, exclusive, "volume") else "")


def _add(used: list[int], in_use: ExclusiveResources, usage: Usage, sign: int) -> ExclusiveResources:
    for column, amount in enumerate(usage.amounts):
        used[column] += sign * amount
    return with_usage(in_use, usage, sign) if usage.is_exclusive else in_use


def _is_shared(in_use: ExclusiveResources, coming: list[Usage], kind: str) -> bool:
    """Whether an exclusive resource of the placements has another holder."""
    if not in_use.extra:
        return False
    for usage in coming:
        things: tuple[object, ...] = _things(usage, kind)
        if any((kind, thing) in in_use.extra for thing in things):
            return True
    return False


def _things(usage: Usage, kind: str) -> tuple[object, ...]:
    found: dict[str, tuple[object, ...]] = {
        "port": _colliding(usage), "core": usage.cores, "device": usage.devices, "volume": usage.volumes,
    }  # fmt: skip
    return found[kind]


def _colliding(usage: Usage) -> tuple[PortKey, ...]:
    """The ports that must have a single holder."""
    return usage.ports if not usage.tolerant else tuple(port for port in usage.ports if port not in usage.tolerant)


def _takes_reserved(node: Node, coming: list[Usage]) -> bool:
    bits = reserved_bits(node.reserved_resources.networks.reserved_host_ports)
    return any(bits >> port & 1 for usage in coming for _, port in _colliding(usage))


def _nothing(plan: Plan) -> Plan:
    return replace(
        plan,
        placements=(),
        in_place=(),
        attributes=(),
        stops=(),
        preemptions=(),
        deployment=None,
        deployment_updates=(),
        gang_members={},
    )


def _without(plan: Plan, rejected: Mapping[str, str]) -> Plan:
    """The plan without the refusing nodes; canaries that are not placed are not counted.

    Allocations that continue on a refusing node are not replaced elsewhere, and no victim ends for a dropped placement.
    """
    staying = {stop.id for stop in plan.stops if stop.node_id in rejected}
    staying |= {u.id for u in plan.attributes if u.client_status is not None and u.node_id in rejected}
    placements = tuple(p for p in plan.placements if p.node_id not in rejected and p.previous_allocation not in staying)
    dropped = {p.id for p in plan.placements} - {p.id for p in placements}
    return replace(
        plan,
        placements=placements,
        in_place=tuple(u for u in plan.in_place if u.node_id not in rejected),
        attributes=tuple(u for u in plan.attributes if u.node_id not in rejected),
        stops=tuple(stop for stop in plan.stops if stop.node_id not in rejected),
        preemptions=tuple(
            # A gang ends as a whole for a placement that stays, also on nodes that refuse another.
            stop
            for stop in plan.preemptions
            if (stop.node_id not in rejected or stop.reclaimed_for) and stop.preempted_by not in dropped
        ),
        deployment=_with_canaries(plan.deployment, {p.id for p in placements}),
        gang_members=_of_placed(plan.gang_members, placements),
    )


def _whole_gangs(plan: Plan) -> Plan:
    """The plan without gangs below their minimum; allocations that they would replace continue."""
    left = Counter(placement.task_group for placement in plan.placements)
    broken = {name for name, least in plan.gangs.items() if left[name] < least}
    if not broken:
        return plan
    dropped = [placement for placement in plan.placements if placement.task_group in broken]
    ids = {placement.id for placement in dropped}
    replaced = {placement.previous_allocation for placement in dropped}
    placements = tuple(placement for placement in plan.placements if placement.id not in ids)
    return replace(
        plan,
        placements=placements,
        stops=tuple(stop for stop in plan.stops if stop.id not in replaced),
        preemptions=tuple(stop for stop in plan.preemptions if stop.preempted_by not in ids),
        deployment=_with_canaries(plan.deployment, {placement.id for placement in placements}),
        gangs={name: least for name, least in plan.gangs.items() if name not in broken},
        gang_members=_of_placed(plan.gang_members, placements),
    )


def _of_placed(members: Mapping[str, int], placements: Iterable[Placement]) -> Mapping[str, int]:
    """The minimums of the gangs that still have placements; only with these `apply` must count."""
    placed = {placement.task_group for placement in placements} if members else frozenset()
    return {name: least for name, least in members.items() if name in placed}


def _keeps_gangs(plan: Plan) -> bool:
    """Whether each gang in the plan reaches its minimum (invariant B6)."""
    placed = Counter(placement.task_group for placement in plan.placements)
    return all(placed[name] >= least for name, least in plan.gangs.items() if placed[name])


def _with_canaries(deployment: Deployment | None, placed: set[str]) -> Deployment | None:
    if deployment is None:
        return None
    groups = {
        name: replace(state, placed_canaries=tuple(c for c in state.placed_canaries if c in placed))
        for name, state in deployment.task_groups.items()
    }
    return replace(deployment, task_groups=groups)
