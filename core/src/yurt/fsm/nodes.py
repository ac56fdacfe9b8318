"""Nodes: registration, status, eligibility, drain and events.

A registration brings what the client owns; status, drain, eligibility, events and the heartbeat indexes belong to the
servers and stay. Whether a client may become ready is decided before a command is proposed;
here the status is stored, and `last_missed_heartbeat_index` follows it: the index at which the node stopped
answering, 0 once it is ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from yurt.fsm.bookkeeping.devices import changed_by_operator, move_from_failed_devices, pending_marks, with_marks
from yurt.fsm.edit import Edit
from yurt.fsm.eval_triggers import evals_for_node, mint_of, registration_needs_evals, transition_needs_evals
from yurt.fsm.evals import put_evaluations
from yurt.fsm.host_volumes import follow_node
from yurt.fsm.node_class import computed_class
from yurt.fsm.reject import conflict, denied, invalid, not_found
from yurt.sdk.value import NANOSECONDS, replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.cluster import NodePool
from yurt.structs.commands import (
    AddNodeEvents,
    DeleteNodes,
    EvalSeed,
    EvaluateNode,
    NodeCommand,
    RegisterNode,
    Rejected,
    SetDeviceEligibility,
    SetNodeDrain,
    SetNodeEligibility,
    SetNodeStatus,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import SHUTDOWN_META, Node, NodeEvent
from yurt.structs.predicates import holds_up_drain
from yurt.structs.rules import DEVICE_RULES, PACED_MOVE_RULES
from yurt.structs.status import NodeStatus

EVENTS_MAX = 10
WRONG_SECRET = "node secret ID does not match. Not registering node."
STATUSES = frozenset({status.NODE_INIT, status.NODE_READY, status.NODE_DOWN, status.NODE_DISCONNECTED})


def apply_node(edit: Edit, command: NodeCommand) -> Rejected | None:
    """Apply a node command."""
    match command:
        case RegisterNode():
            return _register(edit, command)
        case SetNodeStatus():
            return _set_status(edit, command)
        case SetNodeEligibility():
            return _set_eligibility(edit, command)
        case SetDeviceEligibility():
            return _set_device_eligibility(edit, command)
        case SetNodeDrain():
            return _set_drain(edit, command)
        case AddNodeEvents():
            return _add_events(edit, command)
        case EvaluateNode():
            return _evaluate(edit, command)
        case DeleteNodes():
            return _delete(edit, command)
        case _:
            assert_never(command)


def _register(edit: Edit, command: RegisterNode) -> Rejected | None:
    node = command.node
    if not node.id:
        return invalid("a node without an ID")
    if node.status not in STATUSES:
        return invalid(f'node "{node.id}" has the unknown status "{node.status}"')
    existing: Node | None = edit.tx.get(Tables.nodes, node.id)
    if existing is not None and existing.secret_id and existing.secret_id != node.secret_id:
        return denied(WRONG_SECRET)
    preserved = _preserved_fields(existing) if existing is not None else _new_fields(edit.index)
    was_marked = existing.device_marks if existing is not None else {}
    message = _registration_message(existing, node)
    event = (NodeEvent(message=message, subsystem="Cluster", timestamp=node.status_updated_at * NANOSECONDS),)
    registered = replace(node, **preserved, computed_class=computed_class(node), modify_index=edit.index)
    registered = with_marks(replace(registered, device_marks=pending_marks(was_marked, node)))
    registered = with_events(registered, command.events or (event if message else ()), index=edit.index)
    assert existing is None or registered.drain_strategy is existing.drain_strategy, "a client does not end its drain"
    edit.tx.put(Tables.nodes, node.id, registered)
    follow_node(edit, node.id)
    if command.create_node_pool and edit.tx.get(Tables.node_pools, node.node_pool) is None:
        pool = NodePool(name=node.node_pool, create_index=edit.index, modify_index=edit.index)
        edit.tx.put(Tables.node_pools, node.node_pool, pool)
    knows_devices = command.rules_version >= DEVICE_RULES
    needed = registration_needs_evals(existing, registered, has_device_notes=knows_devices)
    if knows_devices:
        now, is_paced = command.seed.now if command.seed is not None else 0, command.rules_version >= PACED_MOVE_RULES
        needed |= move_from_failed_devices(edit, registered, now=now, is_paced=is_paced)
    return _evaluate_jobs(edit, registered, command, needed=needed)


def _new_fields(index: int) -> dict[str, object]:
    return {
        "create_index": index,
        "events": (),
        "last_missed_heartbeat_index": 0,
        "last_alloc_update_index": 0,
    }


def _preserved_fields(existing: Node) -> dict[str, object]:
    return {
        "create_index": existing.create_index,
        "status": existing.status,
        "status_updated_at": existing.status_updated_at,
        "drain_strategy": existing.drain_strategy,
        "scheduling_eligibility": existing.scheduling_eligibility,
        "events": existing.events,
        "last_drain": existing.last_drain,
        "last_missed_heartbeat_index": existing.last_missed_heartbeat_index,
        "last_alloc_update_index": existing.last_alloc_update_index,
    }


def _registration_message(existing: Node | None, node: Node) -> str:
    if existing is None:
        return "Node registered"
    if existing.status == status.NODE_DOWN:
        return "Node re-registered"
    return ""


def with_status(node: Node, now: NodeStatus, *, index: int) -> Node:
    """A copy with a status and the resulting heartbeat index."""
    missed_index = node.last_missed_heartbeat_index
    match now:
        case "ready":
            missed_index = 0
        case "down" | "disconnected":
            # The first of these times counts: a node that is down after it was disconnected was missed then already.
            missed_index = missed_index if node.status in status.NODE_UNRESPONSIVE else index
        case "initializing":
            pass
        case _:
            assert_never(now)
    return replace(node, status=now, last_missed_heartbeat_index=missed_index, modify_index=index)


def with_events(node: Node, events: Iterable[NodeEvent | None], *, index: int) -> Node:
    """A copy with events added; the last ten are kept."""
    added = tuple(replace(event, create_index=index) for event in events if event is not None)
    if not added:
        return node
    assert all(event.create_index == index for event in added), "an event belongs to the command that brought it"
    return replace(node, events=(*node.events, *added)[-EVENTS_MAX:])


def _set_status(edit: Edit, command: SetNodeStatus) -> Rejected | None:
    node: Node | None = edit.tx.get(Tables.nodes, command.node_id)
    if node is None:
        return _unknown(command.node_id)
    if command.status not in STATUSES:
        return invalid(f'unknown node status "{command.status}"')
    changed = with_status(node, command.status, index=edit.index)
    changed = with_events(changed, (command.event,), index=edit.index)
    edit.tx.put(Tables.nodes, node.id, replace(changed, status_updated_at=command.updated_at))
    follow_node(edit, node.id)
    if command.status == status.NODE_DOWN:
        edit.drop_services("node", node.id)
    return _evaluate_jobs(edit, changed, command, needed=transition_needs_evals(node.status, command.status))


def _set_eligibility(edit: Edit, command: SetNodeEligibility) -> Rejected | None:
    node: Node | None = edit.tx.get(Tables.nodes, command.node_id)
    if node is None:
        return _unknown(command.node_id)
    if command.eligibility not in (status.ELIGIBLE, status.INELIGIBLE):
        return invalid(f'unknown scheduling eligibility "{command.eligibility}"')
    if node.drain_strategy is not None and command.eligibility == status.ELIGIBLE:
        return invalid("can not set node's scheduling eligibility to eligible while it is draining")
    changed = replace(node, scheduling_eligibility=command.eligibility, modify_index=edit.index)
    if node.last_drain is not None and SHUTDOWN_META in node.last_drain.meta:
        # Eligibility that an operator sets while the agent is away still holds when it returns.
        rest = {name: text for name, text in node.last_drain.meta.items() if name != SHUTDOWN_META}
        changed = replace(changed, last_drain=replace(node.last_drain, meta=rest))
    _check_drain(changed)
    edit.tx.put(Tables.nodes, node.id, with_events(changed, (command.event,), index=edit.index))
    becomes_eligible = command.eligibility == status.ELIGIBLE and node.scheduling_eligibility != status.ELIGIBLE
    return _evaluate_jobs(edit, changed, command, needed=becomes_eligible)


def _set_device_eligibility(edit: Edit, command: SetDeviceEligibility) -> Rejected | None:
    node: Node | None = edit.tx.get(Tables.nodes, command.node_id)
    if node is None:
        return _unknown(command.node_id)
    now = command.seed.now if command.seed is not None else 0
    changed = changed_by_operator(node, command, index=edit.index, now=now)
    if isinstance(changed, Rejected):
        return changed
    edit.tx.put(Tables.nodes, node.id, changed)
    return _evaluate_jobs(edit, changed, command, needed=command.is_eligible)


def _set_drain(edit: Edit, command: SetNodeDrain) -> Rejected | None:
    node: Node | None = edit.tx.get(Tables.nodes, command.node_id)
    if node is None:
        return _unknown(command.node_id)
    if _is_too_early(edit, node, command):
        return conflict(f'allocations came to node "{node.id}" while its drain ended')
    eligibility = node.scheduling_eligibility
    if command.strategy is not None:
        eligibility = status.INELIGIBLE
    elif command.mark_eligible:
        eligibility = status.ELIGIBLE
    changed = replace(
        node,
        drain_strategy=command.strategy,
        scheduling_eligibility=eligibility,
        last_drain=command.last_drain or node.last_drain,
        modify_index=edit.index,
    )
    _check_drain(changed)
    edit.tx.put(Tables.nodes, node.id, with_events(changed, (command.event,), index=edit.index))
    becomes_eligible = command.strategy is None and command.mark_eligible
    return _evaluate_jobs(edit, changed, command, needed=becomes_eligible)


def _check_drain(node: Node) -> None:
    is_open = node.scheduling_eligibility == status.ELIGIBLE
    assert node.drain_strategy is None or not is_open, (node.id, "a draining node would get what it drains back")


def _is_too_early(edit: Edit, node: Node, command: SetNodeDrain) -> bool:
    """Whether the drain is marked complete although allocations from before its start remain."""
    is_end = command.last_drain is not None and command.last_drain.status == status.DRAIN_COMPLETE
    if command.strategy is not None or node.drain_strategy is None or not is_end:
        return False
    spec = node.drain_strategy.drain_spec
    allocs = (edit.alloc(alloc_id) for alloc_id in edit.tx.keys_where(Tables.allocs, "node", node.id))
    return any(alloc is not None and holds_up_drain(alloc, spec) for alloc in allocs)


def _add_events(edit: Edit, command: AddNodeEvents) -> Rejected | None:
    existing = edit.tx.present(Tables.nodes, sorted(command.events))
    if command.events and not existing:
        return _unknown(min(command.events))
    for node in edit.tx.rows(Tables.nodes, existing):
        changed = with_events(replace(node, modify_index=edit.index), command.events[node.id], index=edit.index)
        edit.tx.put(Tables.nodes, node.id, changed)
    return None


def _evaluate(edit: Edit, command: EvaluateNode) -> Rejected | None:
    node: Node | None = edit.tx.get(Tables.nodes, command.node_id)
    return (
        _unknown(command.node_id) if node is None else put_evaluations(edit, _evaluations(edit, (node,), command.seed))
    )


def _delete(edit: Edit, command: DeleteNodes) -> Rejected | None:
    existing = edit.tx.rows(Tables.nodes, edit.tx.present(Tables.nodes, command.node_ids))
    if command.node_ids and not existing:
        return _unknown(command.node_ids[0])
    evaluations = _evaluations(edit, existing, command.seed) if command.seed is not None else command.evaluations
    for node in existing:
        edit.tx.delete(Tables.nodes, node.id)
        follow_node(edit, node.id)
        edit.drop_services("node", node.id)
    return put_evaluations(edit, evaluations)


def _evaluate_jobs(
    edit: Edit,
    node: Node,
    command: RegisterNode | SetNodeStatus | SetNodeEligibility | SetDeviceEligibility | SetNodeDrain,
    *,
    needed: bool,
) -> Rejected | None:
    """Evaluate the jobs of a node after this command, where needed."""
    if command.seed is None:
        return None if isinstance(command, SetDeviceEligibility) else put_evaluations(edit, command.evaluations)
    return put_evaluations(edit, _evaluations(edit, (node,), command.seed)) if needed else None


def _evaluations(edit: Edit, nodes: Iterable[Node], seed: EvalSeed) -> tuple[Evaluation, ...]:
    mint = mint_of(seed)
    made = (evals_for_node(edit.tx.base, node, mint, trigger=status.TRIGGER_NODE_UPDATE) for node in nodes)
    return tuple(evaluation for each in made for evaluation in each)


def _unknown(node_id: str) -> Rejected:
    return not_found(f'node "{node_id}" not found')
