"""Moves services away from failed devices at the pace of their migrate blocks, as a drain does.

All cards of a node may fail at once, while what runs on them may still serve. So of each group at most `max_parallel`
allocations, and at least one, are without a healthy replacement at a time. Those that have not become healthy leave at
once. `apply` moves the allocations of other jobs itself, with the registration that reports the failure; one whose plan
was applied after that leaves here, at once.

Allocations out of contact stay: whether they are healthy is unknown. They are looked at again when the node is back.
"""

from __future__ import annotations

from yurt.duties.drain import by_group, counts_as_healthy, movable, transition
from yurt.fsm.bookkeeping.devices import failed_devices, leaves_devices, moves_at_pace
from yurt.fsm.eval_triggers import Mint
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import SetDesiredTransitions
from yurt.structs.node import Node


def waiting_moves(state: Snapshot, node: Node) -> list[Allocation]:
    """The allocations in contact that are to leave failed devices of a node and are not marked yet."""
    failed = failed_devices(node)
    if not failed or node.status in status.NODE_UNRESPONSIVE:
        return []
    return [
        alloc
        for alloc in state.allocs_of_node(node.id)
        if alloc.client_status != status.CLIENT_UNKNOWN and leaves_devices(alloc, failed)
    ]


def device_moves(state: Snapshot, node: Node, mint: Mint) -> SetDesiredTransitions | None:
    """The moves that are possible now; None for none."""
    leaving: list[Allocation] = []
    paced: list[Allocation] = []
    for alloc in waiting_moves(state, node):
        (paced if moves_at_pace(alloc) and counts_as_healthy(alloc) else leaving).append(alloc)
    for group in by_group(paced):
        leaving += movable(state, group, at_least=1)
    return transition(state, leaving, mint, trigger=status.TRIGGER_NODE_UPDATE, replaces_batch=True)
