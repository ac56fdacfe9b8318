"""Node status: permitted transitions and their consequences.

initializing -> ready     once the client has said how its allocations fare since it was last lost (invariant E1)
any -> down, disconnected when a heartbeat was missed: disconnected when an allocation there may outlive that
disconnected -> down      when the last such allocation has expired and nothing was heard meanwhile
disconnected -> ready     never at once: it goes through initializing
down -> ready             only when nothing that the servers still count on was left there

Heartbeats alone change it. A registration never does: it says what the node has, and a client that registers again
may not know that the servers have lost sight of it. A client that is down or disconnected may not report on
allocations; so afterwards it first heartbeats (initializing), then reports, then heartbeats again (ready).
"""

from __future__ import annotations

from typing import Final, assert_never

from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import SetNodeStatus
from yurt.structs.node import Node, NodeEvent
from yurt.structs.predicates import is_expired, is_terminal
from yurt.structs.status import NodeStatus

SUBSYSTEM_CLUSTER: Final = "Cluster"
WAITS_FOR_POOL: Final = "Node registered but waiting for node pool to be created"
BUILT_IN_POOLS: Final = ("", "default", "all")
SECOND: Final = 1_000_000_000


def heartbeat_ttl_s(nodes: int, *, minimum_s: float, per_second: float, draw: float) -> float:
    """Seconds until the next heartbeat: longer with many nodes, staggered by `draw` in [0, 1)."""
    assert 0.0 <= draw < 1.0 and per_second > 0.0, (draw, per_second)
    return max(minimum_s, nodes / per_second) * (1.0 + draw)


def granted_status(state: Snapshot, node: Node, asked: NodeStatus) -> NodeStatus:
    """The status for a node whose client requests `asked`."""
    if asked != status.NODE_READY:
        return asked
    match node.status:
        case "ready":
            return asked
        case "disconnected":
            # The servers do not know its allocations until it has reported them: it becomes ready by way of init.
            return status.NODE_INIT
        case "down":
            return asked if _has_reported(state, node) else status.NODE_INIT
        case "initializing":
            return asked if _has_reported(state, node) and not waits_for_pool(state, node) else status.NODE_INIT
        case _:
            assert_never(node.status)


def waits_for_pool(state: Snapshot, node: Node) -> bool:
    """Whether the node's pool is missing, because it was not yet replicated from the authoritative region."""
    return node.node_pool not in BUILT_IN_POOLS and node.node_pool not in state.node_pools


def pool_event(state: Snapshot, node: Node, now: UnixNano) -> NodeEvent | None:
    """The single event for a node that waits for its pool."""
    is_recorded = any(event.message == WAITS_FOR_POOL for event in node.events)
    return cluster_event(WAITS_FOR_POOL, now) if waits_for_pool(state, node) and not is_recorded else None


def missed_heartbeat_status(state: Snapshot, node: Node, now: UnixNano) -> NodeStatus:
    """The status of a node after a missed heartbeat."""
    if node.status in (status.NODE_INIT, status.NODE_DOWN):
        return status.NODE_DOWN
    if any(_may_outlive_disconnect(alloc, now) for alloc in state.allocs_of_node(node.id)):
        return status.NODE_DISCONNECTED
    return status.NODE_DOWN


def set_status(state: Snapshot, node: Node, new_status: NodeStatus, mint: Mint, *, event: str = "") -> SetNodeStatus:
    """The command that sets a node's status if the basis of the decision still holds."""
    return SetNodeStatus(
        node_id=node.id,
        status=new_status,
        updated_at=mint.now // SECOND,
        event=cluster_event(event, mint.now) if event else None,
        seed=mint.seed(),
        based_on=(expectation(state, "nodes", node.id),),
    )


def cluster_event(message: str, now: UnixNano) -> NodeEvent:
    """A node event caused by the servers."""
    return NodeEvent(message=message, subsystem=SUBSYSTEM_CLUSTER, timestamp=now)


def _has_reported(state: Snapshot, node: Node) -> bool:
    """Whether the node has reported its allocations since it was last lost."""
    if node.last_alloc_update_index > node.last_missed_heartbeat_index:
        return True
    return all(is_terminal(alloc) for alloc in state.allocs_of_node(node.id))


def _may_outlive_disconnect(alloc: Allocation, now: UnixNano) -> bool:
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    if group is None or group.disconnect is None or not group.disconnect.lost_after:
        return False
    if alloc.desired_status != status.DESIRED_RUN or alloc.client_status in status.CLIENT_TERMINAL:
        return False
    return not is_expired(alloc, group.disconnect.lost_after, now)


def registered(node: Node, now: UnixNano) -> Node:
    """A registering node: a new one gets the initial status whatever it asks for, a registered one keeps its status."""
    return replace(node, status=status.NODE_INIT, status_updated_at=now // SECOND)


def refused_report(node: Node | None, *, index: int | None = None) -> str:
    """Why the node's reports are refused (at that index, or now); "" when they are accepted."""
    if node is None:
        return "node not found"
    if node.status not in status.NODE_UNRESPONSIVE or (index is not None and node.last_missed_heartbeat_index > index):
        return ""
    return f"node {node.id} is not allowed to update allocs while in status {node.status}"
