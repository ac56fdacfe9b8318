"""Invariants of the rows that a command changed: quotas, devices, gangs, reconnects, readiness, collection, lists.

C5 a plan preempts only jobs of lower priority, C6 a new allocation fits the quota, C7 its devices are among those that
its node offers to its group, C3 its node is ready, B6 a gang is placed whole, D3 of an allocation and its replacement
one stays, the first names the second, and only allocations out of contact are unknown, D8 launches that must not
overlap do not, E1 a node becomes ready once it has reported its allocations, D9 only ended objects are collected, A5
the index of a list grows when one of its rows is written or deleted. Each function gives the problem, or "" when there
is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from yurt.access import Access
from yurt.scheduler.devices.overbooking import overbooked
from yurt.scheduler.devices.unusable import unusable_device
from yurt.server.views import Rows
from yurt.server.views.cluster import NodeRows
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows, DeploymentRows, EvaluationRows
from yurt.state import Change, Changes, Snapshot
from yurt.state.quota_totals import members_of
from yurt.state.usage import is_using, usage_of
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, ApplyPlan, LaunchPeriodicJob
from yurt.structs.predicates import is_canary, is_ready, is_server_terminal, is_terminal
from yurt.structs.rules import DEVICE_CHECK_RULES

LISTED: Final[tuple[type[Rows[Any, Any]], ...]] = (AllocationRows, DeploymentRows, EvaluationRows, JobRows, NodeRows)
PREEMPTION_DELTA: Final = 10
EVERYTHING: Final = Access()
"""The rights of a reader who sees every row."""


def problem_of(before: Snapshot, state: Snapshot, command: AnyCommand, changes: Changes) -> str:
    """The first violation in the rows that a command changed."""
    if problem := _of_lists(state, {each.table for each in changes}):
        return problem
    for change in changes:
        problem = ""
        if change.table == "nodes":
            problem = _of_node(before, change)
        elif change.table == "allocs" and change.after is None and change.before is not None:
            problem = _of_collected(change.before, state)
        if problem:
            return problem
    if isinstance(command, LaunchPeriodicJob):
        return _of_launch(before, state, command)
    if not isinstance(command, ApplyPlan):
        return ""
    allocs = [each for each in changes if each.table == "allocs" and each.after is not None]
    of_devices = _of_devices(state, allocs) if command.rules_version >= DEVICE_CHECK_RULES else ""
    return (
        of_devices
        or _of_quotas(before, state, allocs, since=command.plan.snapshot_index)
        or gangs_in_part(before, state, allocs)
        or _of_reconnects(state, allocs)
        or _of_placements(state, allocs)
        or _of_disconnects(state, allocs)
        or _of_preemptions(state, allocs)
    )


def _of_lists(state: Snapshot, tables: Collection[str]) -> str:
    """A5: the index of a list is that of the last change of its rows, deletions included."""
    for kind in LISTED:
        if kind.name in tables and (index := kind(state, EVERYTHING).index) != state.index:
            return f"A5 the list of {kind.name} is at index {index} after a change at index {state.index}"
    return ""


def _of_node(before: Snapshot, change: Change) -> str:
    """E1: a node that was lost or is new becomes ready only after it reported its allocations."""
    old, new = change.before, change.after
    if old is None or new is None or new.status != status.NODE_READY or old.status == status.NODE_READY:
        return ""
    has_reported = old.last_alloc_update_index > old.last_missed_heartbeat_index
    if has_reported or all(is_terminal(each) for each in before.allocs_of_node(new.id)):
        return ""
    return f"E1 {new.name} is ready, and has not reported its allocations since index {old.last_missed_heartbeat_index}"


def _of_collected(gone: Allocation, state: Snapshot) -> str:
    """D9: only ended objects are garbage-collected."""
    if is_terminal(gone):
        return ""
    return (
        f"D9 allocation {gone.id[:8]} of {gone.job_id} is deleted at index {state.index}, and is {gone.client_status}"
    )


def _of_devices(state: Snapshot, allocs: Iterable[Change]) -> str:
    """C7: a new allocation has no device that has failed, vanished, or is on trial and not for its group, and its
    share fits next to those that stay."""
    for alloc in (each.after for each in allocs if each.before is None):
        devices, node = usage_of(alloc).devices, state.nodes.get(alloc.node_id)
        group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
        if not devices or node is None:
            continue
        staying = [each for each in state.allocs_of_node(node.id) if is_using(each) and not is_server_terminal(each)]
        in_use = {device for each in staying for device in usage_of(each).devices}
        reason = unusable_device(node, devices, group) or overbooked(node, in_use, devices)
        if reason:
            return f"C7 {alloc.id[:8]} of {alloc.job_id} is placed at index {state.index}, but {reason}"
    return ""


def _of_quotas(before: Snapshot, state: Snapshot, allocs: Collection[Change], *, since: int) -> str:
    """C6: a plan that raises the usage of a quota stays within its limits; stopped allocations do not count.

    The plan was made on the state at `since`. An allocation that it replaces, and that has failed after that, counts as
    used before the plan.
    """
    spaces = {each.after.namespace for each in allocs}
    names = {found.quota for each in spaces if (found := state.namespaces.get(each)) is not None and found.quota}
    replaced = [each.before for each in allocs if each.before is not None and is_terminal(each.before)]
    failed = [each for each in replaced if each.modify_index > since]
    for name in sorted(names):
        spec, members = state.quotas.get(name), members_of(state, name)
        limit = spec.limit_of("global") if spec is not None else None
        if limit is None or limit.region_limit is None:
            continue
        allowed = (limit.region_limit.cpu or 0, limit.region_limit.memory_mb or 0)
        live = [each for each in before.allocs.values() if not is_terminal(each)]
        old = _used([*live, *failed], members)
        new = _used((each for each in state.allocs.values() if not is_terminal(each)), members)
        if any(now > max(most, then) for most, then, now in zip(allowed, old, new, strict=True) if most):
            return f"C6 quota {name} allows {allowed} MHz and MiB, and a plan uses {new} at index {state.index}"
    return ""


def _used(allocs: Iterable[Allocation], namespaces: Iterable[str]) -> tuple[int, int]:
    """The MHz and MiB of those allocations that are in some namespaces."""
    counted = frozenset(namespaces)
    usages = [usage_of(each) for each in allocs if each.namespace in counted]
    return sum(each.cpu for each in usages), sum(each.memory for each in usages)


def gangs_in_part(before: Snapshot, state: Snapshot, allocs: Iterable[Change]) -> str:
    """B6: after a plan that makes a gang larger, it has at least its minimum of members.

    A drain moves members also while others are missing, which leaves the gang as it was. The added allocation's own
    version counts: until canaries are promoted, replacements have the version before.
    """
    for added in (each.after for each in allocs if each.before is None):
        group = added.job.group(added.task_group) if added.job is not None else None
        job = state.jobs.get((added.namespace, added.job_id))
        newest = job.group(added.task_group) if job is not None else None
        if group is None or group.gang is None:
            continue
        # Of a version before, no more run than the newest one asks for.
        least = group.least if newest is None else min(group.least, newest.count)
        members = _members(state, added)
        if _members(before, added) < members < least:
            return f"B6 {members} of {least} members of gang {added.job_id} are placed at index {state.index}"
    return ""


def _members(state: Snapshot, added: Allocation) -> int:
    """The number of allocations of an allocation's group that run or have completed; canaries are a gang of their
    own."""
    allocs = state.allocs_of_job(added.namespace, added.job_id)
    of_gang = [each for each in allocs if each.task_group == added.task_group and is_canary(each) == is_canary(added)]
    return sum(not is_terminal(each) or each.client_status == status.CLIENT_COMPLETE for each in of_gang)


def _of_reconnects(state: Snapshot, allocs: Iterable[Change]) -> str:
    """D3: after a plan keeps a reconnected allocation, no other of its name and version runs."""
    for change in allocs:
        old, new = change.before, change.after
        is_kept = old is not None and len(new.alloc_states) > len(old.alloc_states)
        if not is_kept or new.client_status == status.CLIENT_UNKNOWN or is_server_terminal(new):
            continue
        others = [
            each.id[:8]
            for each in state.allocs_of_job(new.namespace, new.job_id)
            if each.name == new.name and each.id != new.id and not is_terminal(each) and _is_alike(each, new)
        ]
        if others:
            return f"D3 {new.id[:8]} of {new.job_id} stays at index {state.index}, next to {others}"
    return ""


def _of_placements(state: Snapshot, allocs: Iterable[Change]) -> str:
    """C3 and D3: a new allocation is on a ready node, and its predecessor names it as its successor."""
    for new in (each.after for each in allocs if each.before is None):
        node, previous = state.nodes.get(new.node_id), state.allocs.get(new.previous_allocation)
        if node is None or not is_ready(node):
            return f"C3 {new.id[:8]} of {new.job_id} is placed at index {state.index} on a node that is not ready"
        if previous is not None and previous.next_allocation != new.id:
            return f"D3 {new.id[:8]} of {new.job_id} replaces {previous.id[:8]}, which does not name it"
    return ""


def _of_disconnects(state: Snapshot, allocs: Iterable[Change]) -> str:
    """D3: a plan marks only allocations unknown whose client is out of contact."""
    for old, new in ((each.before, each.after) for each in allocs if each.before is not None):
        if new.client_status != status.CLIENT_UNKNOWN or old.client_status == status.CLIENT_UNKNOWN:
            continue
        node = state.nodes.get(new.node_id)
        if node is not None and node.status not in status.NODE_UNRESPONSIVE:
            return f"D3 {new.id[:8]} of {new.job_id} is unknown at index {state.index}, and its node {node.status}"
    return ""


def _of_preemptions(state: Snapshot, allocs: Iterable[Change]) -> str:
    """C5: a plan preempts only allocations of jobs whose priority is lower by 10 at least."""
    for old, victim in ((each.before, each.after) for each in allocs if each.before is not None):
        if not victim.preempted_by_allocation or old.preempted_by_allocation == victim.preempted_by_allocation:
            continue
        preempting = state.allocs.get(victim.preempted_by_allocation)
        if preempting is None or preempting.job is None or victim.job is None:
            return f"C5 {victim.id[:8]} of {victim.job_id} is preempted at index {state.index} for nothing"
        if victim.job.priority + PREEMPTION_DELTA > preempting.job.priority:
            return (
                f"C5 {victim.id[:8]} of {victim.job_id} with priority {victim.job.priority} is preempted at index "
                f"{state.index} for {preempting.job_id} with {preempting.job.priority}"
            )
    return ""


def _of_launch(before: Snapshot, state: Snapshot, command: LaunchPeriodicJob) -> str:
    """D8: a scheduled launch that must not overlap begins no job while another of its parent is alive."""
    key = (command.namespace, command.job_id)
    parent = state.jobs.get(key)
    if not command.specification_index or parent is None or parent.periodic is None:
        return ""
    children = state.jobs.where("parent", key)
    if len(children) == len(before.jobs.where("parent", key)) or not parent.periodic.prohibit_overlap:
        return ""
    alive = sorted(each.id for each in children if each.status != status.JOB_DEAD)
    return f"D8 {alive} are alive at index {state.index}, and must not overlap" if len(alive) > 1 else ""


def _is_alike(one: Allocation, other: Allocation) -> bool:
    """Whether two allocations have the same version and both clients are connected."""
    is_same = one.job is not None and other.job is not None and one.job.version == other.job.version
    return is_same and one.client_status != status.CLIENT_UNKNOWN
