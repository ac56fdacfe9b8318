"""Classifies each allocation of a job; the first rule that matches decides (docs/explanation/reconciling.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from yurt.scheduler.reconcile.reschedule_policy import NO_PLACEMENT, group_of
from yurt.sdk.value import UnixNano
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.predicates import is_expired
from yurt.structs.status import (
    CLIENT_FAILED,
    CLIENT_PENDING,
    CLIENT_RUNNING,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    DESIRED_RUN,
    NODE_DISCONNECTED,
    NODE_DOWN,
    SERVER_TERMINAL,
)

UNTAINTED, MIGRATE, LOST, DISCONNECTING, RECONNECTING, IGNORED, EXPIRING = range(7)


class Classified(NamedTuple):
    """Allocations by class, in the given order."""

    untainted: list[Allocation]
    migrate: list[Allocation]
    lost: list[Allocation]
    disconnecting: list[Allocation]
    reconnecting: list[Allocation]
    ignored: list[Allocation]
    expiring: list[Allocation]


def classify_all(
    allocs: Iterable[Allocation], nodes: Mapping[str, Node | None], *, is_batch: bool, now: UnixNano
) -> Classified:
    """Classify allocations. `nodes` contains the node of every allocation."""
    classes = Classified([], [], [], [], [], [], [])
    for alloc in allocs:
        classes[classify(alloc, nodes.get(alloc.node_id), is_batch=is_batch, now=now)].append(alloc)
    return classes


def has_each_once(classes: Classified, allocs: Sequence[Allocation]) -> bool:
    """Whether the classes partition the allocations, judged by their numbers."""
    return sum(map(len, classes)) == len(allocs)


def classify(alloc: Allocation, node: Node | None, *, is_batch: bool, now: UnixNano) -> int:
    """The class of one allocation; `node` is None when it was deleted."""
    is_returning = is_reconnect_due(alloc)
    is_server_terminal = alloc.desired_status in SERVER_TERMINAL
    # An allocation that failed out of contact is terminal but not decided: its replacement may be running. So the
    # return is tested before the terminal states.
    if is_returning and alloc.desired_status == DESIRED_RUN and alloc.client_status == CLIENT_FAILED:
        return RECONNECTING
    if (is_server_terminal or alloc.client_status in CLIENT_TERMINAL) and not is_returning:
        return _terminal(alloc, is_server_terminal=is_server_terminal, is_batch=is_batch)
    if is_server_terminal:
        return UNTAINTED if is_batch and alloc.desired_transition.migrate_disable_placement else IGNORED
    # `lost_after` is a promise about time, so it is tested before anything that the node says of itself.
    if is_past_lost_after(alloc, now):
        return EXPIRING
    if node is not None and node.status == NODE_DISCONNECTED:
        return _on_disconnected(alloc)
    # A drain in progress migrates an allocation even if its node goes down meanwhile.
    if alloc.desired_transition.migrate:
        return MIGRATE
    if node is None:
        return LOST
    if node.status != NODE_DOWN:
        return RECONNECTING if is_returning and alloc.client_status != CLIENT_UNKNOWN else UNTAINTED
    return _on_down(alloc)


def _terminal(alloc: Allocation, *, is_server_terminal: bool, is_batch: bool) -> int:
    if is_server_terminal:
        if is_batch or is_unplaced(alloc):
            return UNTAINTED
        return IGNORED
    status = alloc.deployment_status
    if status is not None and status.canary and alloc.desired_transition.migrate:
        return MIGRATE
    return UNTAINTED


def _on_disconnected(alloc: Allocation) -> int:
    if alloc.client_status == CLIENT_UNKNOWN:
        return UNTAINTED
    if alloc.client_status == CLIENT_PENDING or strategy_of(alloc).lost_after <= 0:
        return LOST
    return DISCONNECTING


def _on_down(alloc: Allocation) -> int:
    strategy = strategy_of(alloc)
    if not strategy.replace and alloc.client_status == CLIENT_UNKNOWN:
        return UNTAINTED
    if not strategy.replace and alloc.client_status == CLIENT_RUNNING:
        return DISCONNECTING
    return LOST


def strategy_of(alloc: Allocation) -> DisconnectStrategy:
    """The group's disconnect block, or the defaults."""
    group = group_of(alloc)
    strategy = group.disconnect if group is not None else None
    return strategy if strategy is not None else DisconnectStrategy(replace=True)


def is_reconnect_due(alloc: Allocation) -> bool:
    """Whether it was marked unknown and the decision after its return is open."""
    if alloc.client_status not in (CLIENT_UNKNOWN, CLIENT_RUNNING, CLIENT_FAILED):
        return False
    values = [state.value for state in alloc.alloc_states if state.field == "ClientStatus"]
    return bool(values) and values[-1] == CLIENT_UNKNOWN


def is_past_lost_after(alloc: Allocation, now: UnixNano) -> bool:
    """Whether an unknown allocation has exceeded its time limit."""
    return alloc.client_status == CLIENT_UNKNOWN and is_expired(alloc, strategy_of(alloc).lost_after, now)


def is_abandoned(alloc: Allocation, node: Node | None, *, now: UnixNano) -> bool:
    """Whether it should stop, but its client cannot confirm: the node is down or deleted, or its time expired."""
    if alloc.desired_status not in SERVER_TERMINAL or alloc.client_status in CLIENT_TERMINAL:
        return False
    return is_out_of_reach(node) or is_past_lost_after(alloc, now)


def is_out_of_reach(node: Node | None) -> bool:
    """Whether no further reports are expected from the node."""
    return node is None or node.status == NODE_DOWN


def is_unplaced(alloc: Allocation) -> bool:
    """Whether the last attempt to replace it was unplaced."""
    return alloc.reschedule_tracker is not None and alloc.reschedule_tracker.last_reschedule == NO_PLACEMENT
