"""The events that unblock evaluations, derived from the changes of a command."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from yurt import scheduler
from yurt.broker import BlockedEvals
from yurt.sdk.value import UnixNano
from yurt.server.scheduling.freed_nodes import FreedNodes
from yurt.server.scheduling.missed_unblocks import (
    changes_guarantees,
    unblock_entitled,
    unblock_guaranteed,
    unblock_missed,
    uses_csi,
)
from yurt.state import Change, Changes, Snapshot, has_change_among
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import Node, without_device_notes
from yurt.structs.plan import Plan
from yurt.structs.predicates import is_client_terminal, is_ready, is_terminal

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

log = logging.getLogger(__name__)

PRUNED_AFTER: Final = 3
VOLUME_TABLES: Final = ("csi_volumes", "host_volumes", "host_volume_claims")
FOLLOWED: Final = frozenset({"allocs", "nodes", "namespaces", "quotas", *VOLUME_TABLES})
"""The tables whose changes may free something."""


def region_of(limits: LimitsOf | None) -> str:
    """The region whose guarantees of quotas hold; "" for limits without any."""
    region: str = getattr(limits, "region", "")
    return region


class UnblockEvents:
    """Tells the blocked evaluations of a term what became free."""

    def __init__(self, blocked: BlockedEvals, current: Callable[[], Snapshot], limits: LimitsOf | None) -> None:
        """`limits` of jobs; None: evaluations are not checked."""
        self._blocked = blocked
        self._current = current
        self._limits = limits
        self._region = region_of(limits)
        self._freed = FreedNodes()
        self._prune_marks: list[int] = []

    def note_missed(self, state: Snapshot, evaluations: Collection[Evaluation]) -> None:
        """Tell of what changed after the snapshots of evaluations, before they are blocked."""
        self._freed.forget(state.index)
        unblock_missed(self._blocked, state, evaluations, region=self._region)

    def note(self, changes: Changes, *, index: int) -> Collection[Evaluation]:
        """Tell of the changes of a command, which may lack new allocations; returns the evaluations of nodes, which
        are unblocked at once."""
        if not has_change_among(changes, FOLLOWED):
            return ()
        freed: set[str] = set()
        closed: set[str] = set()
        limits: set[str] = set()
        shrunk: set[str] = set()
        is_volume_free = has_other_guarantees = False
        for change in changes:
            if change.table == "allocs":
                if change.before is not None and frees_guarantee(change.before, change.after):
                    shrunk.add(change.before.namespace)
                if change.before is not None and freed_resources(change.before, change.after):
                    freed.add(change.before.node_id)
                    is_volume_free = is_volume_free or uses_csi(change.before)
                    limits.update(self._limits_of(change.before.namespace))
            elif change.table == "nodes":
                if gained_capacity(change.before, change.after):
                    freed.add(change.after.id)
                elif has_closed(change.before, change.after):
                    closed.add(change.before.id)
                is_volume_free = is_volume_free or has_other_controllers(change.before, change.after)
            elif change.table in ("namespaces", "quotas"):
                limits.update(_quotas_of(self._current(), change))
                has_other_guarantees = has_other_guarantees or changes_guarantees(change)
            elif change.table in VOLUME_TABLES:
                freed.update(self._nodes_of_volume(change, index))
        if is_volume_free:
            freed.update(self._current().nodes.keys())
        for name in sorted(limits - {""}):
            self._blocked.unblock_limit(name, index=index)
        if has_other_guarantees:  # jobs may reclaim what they could not before
            unblock_guaranteed(self._blocked, self._current(), self._region, index=index)
        if shrunk:
            unblock_entitled(self._blocked, self._current(), dict.fromkeys(shrunk, index), region=self._region)
        # Evaluations that waited for a closed node wait for nothing now, and deployments may end without the node.
        ended = [each for node_id in sorted(closed) for each in self._blocked.unblock_node(node_id, index=index)]
        return [*ended, *self._note_nodes(freed, index)] if freed else ended

    def _nodes_of_volume(self, change: Change, index: int) -> list[str]:
        """The nodes on which a change of a volume or a claim frees something."""
        if change.table == "csi_volumes" and change.after is not None:
            self._blocked.unblock_missing(change.after.id, index=index)
        elif change.table == "host_volumes":
            return [(change.after or change.before).node_id]  # what waited for a deleted one has nothing to wait for
        elif change.table == "host_volume_claims" and change.after is None:
            named = self._current().host_volumes.where("name", change.before.volume_name)
            return [volume.node_id for volume in named]
        return []

    def note_dropped(self, plan: Plan, *, index: int) -> Collection[Evaluation]:
        """Tell that a plan which attempts counted as in flight places nothing; returns the evaluations of nodes."""
        for name in self._limits_of(plan.namespace):
            self._blocked.unblock_limit(name, index=index)
        unblock_entitled(self._blocked, self._current(), {plan.namespace: index}, region=self._region)
        return self._note_nodes({placement.node_id for placement in plan.placements}, index)

    def still_blocked(self, evaluation: Evaluation, *, now: UnixNano) -> Evaluation | None:
        """An unblocked evaluation as an attempt would leave it, if it is certain that it would place nothing.

        A failure of the scheduler must not end what observes the log: the attempt shows it, and is contained.
        """
        if self._limits is None or not scheduler.is_loaded():
            return None
        freed = self._freed.after(evaluation.snapshot_index)
        try:
            return scheduler.still_blocked(self._current(), evaluation, freed=freed, now=now, limits=self._limits)
        except Exception:
            log.exception("a blocked evaluation cannot be checked: eval=%s", evaluation.id)
            return None

    def prune(self) -> None:
        """Drop the events from before the third call before this one."""
        self._prune_marks.append(self._current().index)
        if len(self._prune_marks) > PRUNED_AFTER:
            self._blocked.prune(self._prune_marks.pop(0))

    def _note_nodes(self, node_ids: set[str], index: int) -> list[Evaluation]:
        state = self._current()
        self._freed.note(node_ids, index)
        classes: set[str] = set()
        evaluations: list[Evaluation] = []
        for node_id in sorted(node_ids):
            node = state.nodes.get(node_id)
            if node is not None and is_ready(node):
                classes.add(node.computed_class)
                evaluations.extend(self._blocked.unblock_node(node_id, index=index))
        for computed_class in sorted(classes):
            self._blocked.unblock_class(computed_class, index=index)
        return evaluations

    def _limits_of(self, namespace: str) -> tuple[str, ...]:
        """The quotas under which a namespace counts."""
        state = self._current()
        row = state.namespaces.get(namespace)
        return () if row is None or not row.quota else tuple(_chain(state, row.quota))


def freed_resources(before: Allocation, after: Allocation | None) -> bool:
    """Whether an allocation freed resources."""
    if is_client_terminal(before):
        return False
    if after is None or is_client_terminal(after):
        return True
    resources = after.allocated_resources
    return resources is not before.allocated_resources and resources != before.allocated_resources


def frees_guarantee(before: Allocation, after: Allocation | None) -> bool:
    """Whether an allocation counts for less under guarantees: there it is gone once somebody has asked it to end."""
    if is_terminal(before):
        return False
    return after is None or is_terminal(after) or freed_resources(before, after)


def gained_capacity(before: Node | None, after: Node | None) -> bool:
    """Whether a node gained capacity.

    The computed class does not contain all values that a constraint may name: unique ones are missing.
    """
    if after is None or not is_ready(after):
        return False
    if before is None or not is_ready(before):
        return True
    return (
        before.computed_class != after.computed_class
        or without_device_notes(before.node_resources) != without_device_notes(after.node_resources)
        or before.reserved_resources != after.reserved_resources
        or before.node_max_allocs != after.node_max_allocs
        or before.attributes != after.attributes
        or before.meta != after.meta
        or before.name != after.name
        or before.drivers != after.drivers
        or before.host_networks != after.host_networks
        or before.host_volumes != after.host_volumes
        or before.csi_node_plugins != after.csi_node_plugins
    )


def has_closed(before: Node | None, after: Node | None) -> bool:
    """Whether a node that took new allocations takes none any more."""
    return before is not None and is_ready(before) and (after is None or not is_ready(after))


def has_other_controllers(before: Node | None, after: Node | None) -> bool:
    """Whether CSI controllers, which serve volumes on all nodes, were added or changed."""
    plugins_before = before.csi_controller_plugins if before is not None else {}
    return after is not None and bool(after.csi_controller_plugins) and after.csi_controller_plugins != plugins_before


def _quotas_of(state: Snapshot, change: Change) -> set[str]:
    """The quotas that a changed namespace or quota is about, with those above them."""
    rows = [row for row in (change.before, change.after) if row is not None]
    names = {row.quota if change.table == "namespaces" else row.name for row in rows}
    names |= {row.parent for row in rows if change.table == "quotas"}
    return names | {above for name in names - {""} for above in _chain(state, name)}


def _chain(state: Snapshot, quota: str) -> list[str]:
    """A quota and those above it; imported with the first quota that there is."""
    from yurt.state.quota_totals import chain_of

    return [spec.name for spec in chain_of(state, quota)]
