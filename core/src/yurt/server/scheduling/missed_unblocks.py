"""Finds the blocked evaluations that changes before this term should have woken.

The leader before may have woken an evaluation in its memory alone, and lost its term before a worker took it: in the
state it is blocked still. So a term begins with the news that the state shows: allocations that have ended, and nodes,
volumes, namespaces and quotas that changed after the snapshot of the oldest blocked evaluation. Rows that were deleted
since show nothing, except nodes that evaluations wait for by ID; garbage collection leaves ended allocations for longer
than an evaluation waits for its worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from yurt.broker import BlockedEvals
from yurt.state import Change, Snapshot
from yurt.state.claims import csi_requests
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import is_client_terminal, is_ready, is_terminal
from yurt.structs.quota import QuotaSpec


class _Ended(msgspec.Struct, frozen=True):
    """The index at which an allocation ended last: by node, by namespace, and of those that used a CSI volume."""

    by_node: dict[str, int]
    by_namespace: dict[str, int]
    with_csi: int
    staying_no_more: dict[str, int]
    """By namespace, also of those that were asked to end and have not."""


def unblock_missed(
    blocked: BlockedEvals, state: Snapshot, evaluations: Collection[Evaluation], *, region: str = ""
) -> None:
    """Tell of what changed after the snapshots of evaluations; call it before they are blocked."""
    if not evaluations:
        return
    since = min(evaluation.snapshot_index for evaluation in evaluations)
    ended = _ended(state, since)
    everywhere = max(state.host_volumes.index, state.host_volume_claims.index, ended.with_csi)
    for node in state.nodes.values():
        index = max(node.modify_index, ended.by_node.get(node.id, 0), everywhere)
        if index > since and is_ready(node):
            blocked.unblock_node(node.id, index=index)
            blocked.unblock_class(node.computed_class, index=index)
    for node_id in {evaluation.node_id for evaluation in evaluations} - {""}:
        left = state.nodes.get(node_id)
        if left is None or not is_ready(left):
            blocked.unblock_node(node_id, index=state.nodes.index if left is None else left.modify_index)
    for name in {evaluation.quota_limit_reached for evaluation in evaluations} - {""}:
        from yurt.state.quota_totals import members_of

        used_by = members_of(state, name)
        index = max(ended.by_namespace.get(namespace, 0) for namespace in (*used_by, ""))
        blocked.unblock_limit(name, index=max(index, state.namespaces.index, state.quotas.index))
    for name in {name for evaluation in evaluations for name in evaluation.missing_non_node_resources}:
        blocked.unblock_missing(name, index=state.csi_volumes.index)
    quotas_at = max(state.namespaces.index, state.quotas.index)
    if quotas_at > since:
        unblock_guaranteed(blocked, state, region, index=quotas_at)
    unblock_entitled(blocked, state, ended.staying_no_more, region=region)


def unblock_entitled(blocked: BlockedEvals, state: Snapshot, shrunk: Mapping[str, int], *, region: str) -> None:
    """Tell the members of guaranteed quotas under which less is used than before, by namespace since which index.

    A job that was beyond the guarantee may be within it now, and reclaim what others borrow, on any node.
    """
    if not shrunk or not region or not len(state.quotas):
        return
    from yurt.state.quota_tree import tree_of

    tree = tree_of(state, region)
    if tree is None:
        return
    entitled: dict[str, int] = {}
    for namespace, index in shrunk.items():
        for name in {name for quota in tree.guaranteed(namespace) for name in tree.members[quota]}:
            entitled[name] = max(index, entitled.get(name, 0))
    for name, index in sorted(entitled.items()):
        blocked.unblock_namespace(name, index=index)


def changes_guarantees(change: Change) -> bool:
    """Whether a change of a namespace or a quota is one of guarantees or protections."""
    if change.table == "namespaces":
        return _quota_name(change.before) != _quota_name(change.after)
    return change.table == "quotas" and _guaranteed(change.before) != _guaranteed(change.after)


def unblock_guaranteed(blocked: BlockedEvals, state: Snapshot, region: str, *, index: int) -> None:
    """Guarantees changed at `index`: look again at whatever is guaranteed something.

    A guarantee or protection that is less than it was helps the jobs of other quotas, too.
    """
    if not region or not len(state.quotas):
        return
    from yurt.state.quota_tree import cached_tree

    tree = cached_tree(state, region)
    entitled = {name for quota, share in tree.shares.items() if share.guaranteed for name in tree.members[quota]}
    for name in sorted(entitled):
        blocked.unblock_namespace(name, index=index)


def _quota_name(namespace: Namespace | None) -> str:
    return "" if namespace is None else namespace.quota


def _guaranteed(spec: QuotaSpec | None) -> object:
    """What of a quota decides on reclaim."""
    if spec is None:
        return None
    return spec.parent, spec.protection, tuple((limit.region, limit.guaranteed) for limit in spec.limits)


def _ended(state: Snapshot, since: int) -> _Ended:
    by_node: dict[str, int] = {}
    by_namespace: dict[str, int] = {}
    staying_no_more: dict[str, int] = {}
    with_csi = 0
    for alloc in state.allocs.values() if state.allocs.index > since else ():
        index = alloc.modify_index
        if index > since and is_terminal(alloc):
            staying_no_more[alloc.namespace] = max(index, staying_no_more.get(alloc.namespace, 0))
        if index > since and is_client_terminal(alloc):
            by_node[alloc.node_id] = max(index, by_node.get(alloc.node_id, 0))
            by_namespace[alloc.namespace] = max(index, by_namespace.get(alloc.namespace, 0))
            with_csi = max(with_csi, index if uses_csi(alloc) else 0)
    return _Ended(by_node, by_namespace, with_csi, staying_no_more)


def uses_csi(alloc: Allocation) -> bool:
    """Whether an allocation uses a CSI volume that several nodes may use, though only few at a time."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return group is not None and bool(csi_requests(group))
