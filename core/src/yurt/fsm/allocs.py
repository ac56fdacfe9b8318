"""Allocations: clients' reports and the servers' desired changes.

A client status that is terminal is final: a late report of another one is left out (invariant E7). A node that was
lost may come back and report on an allocation marked lost: its status stays, what it tells of its tasks is kept.
Whether an allocation is lost or unknown is for the servers to say, and a node that is down or disconnected says
nothing until it has been heard of: such reports are left out, however they got into the log.
Health goes from unknown to healthy or unhealthy and from healthy to unhealthy, never back.

`alloc_modify_index` moves with what the client must fetch again; reports of the client itself move `modify_index`
alone.
"""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.alloc_triggers import evals_for_updates
from yurt.fsm.bookkeeping.devices import note_end
from yurt.fsm.bookkeeping.summary_changes import SUMMARY_FIELDS
from yurt.fsm.edit import Edit
from yurt.fsm.eval_triggers import mint_of
from yurt.fsm.evals import put_evaluations
from yurt.fsm.reject import not_found
from yurt.fsm.staging import apply_staged, drop_staged, stage_plan
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, DesiredTransition, IdleState
from yurt.structs.commands import (
    AllocCommand,
    AllocUpdate,
    AnnounceIdleEnd,
    ApplyPlan,
    DropStagedPlans,
    EndIdleAllocs,
    IdleReport,
    KeepAlloc,
    Rejected,
    SetDesiredTransitions,
    StagePlan,
    UpdateAllocsFromClient,
)
from yurt.structs.node import Node
from yurt.structs.predicates import is_client_terminal, is_terminal
from yurt.structs.queueing.idle import is_of_earlier_policy, unmeasured
from yurt.structs.rules import DEVICE_RULES, ENDED_SERVICE_RULES, RECLAIM_RULES

CLIENT_TELLS = frozenset(SUMMARY_FIELDS) - {status.CLIENT_LOST, status.CLIENT_UNKNOWN}

IDLE_TEXT_MAX = 512
"""The maximum number of characters of a client's measurement that are stored."""


def apply_alloc(edit: Edit, command: AllocCommand) -> Rejected | None:
    """Apply an allocation command."""
    match command:
        case ApplyPlan():
            return apply_staged(edit, command) or put_evaluations(edit, command.evaluations)
        case StagePlan():
            return stage_plan(edit, command)
        case DropStagedPlans():
            return drop_staged(edit, command.plan_id)
        case UpdateAllocsFromClient():
            return _update(edit, command)
        case SetDesiredTransitions():
            return _set_transitions(edit, command)
        case AnnounceIdleEnd() | EndIdleAllocs() | KeepAlloc():
            from yurt.fsm.bookkeeping.idle import apply_idle

            return apply_idle(edit, command)
        case _:
            assert_never(command)


def _update(edit: Edit, command: UpdateAllocsFromClient) -> Rejected | None:
    seed = command.seed
    may_report = {
        node_id: _may_report(edit, node_id) for node_id in dict.fromkeys(one.node_id for one in command.updates)
    }
    own = [update for update in command.updates if _is_own(edit.alloc(update.id), update)]
    evaluations = command.evaluations
    if seed is not None:
        replaces_ended = edit.rules_version >= ENDED_SERVICE_RULES
        evaluations = evals_for_updates(edit.tx.base, own, mint_of(seed), replaces_ended=replaces_ended)
    for update in own:
        if not may_report[update.node_id]:
            continue
        alloc = edit.alloc(update.id)
        assert alloc is not None, update.id
        reported = with_report(alloc, update, index=edit.index)
        counts = command.rules_version >= RECLAIM_RULES
        changed = with_idle_report(reported, update, edit.index, command.now, counts_withdrawals=counts)
        if changed != alloc:
            edit.put_alloc(alloc, replace(changed, modify_index=edit.index, modify_time=command.now))
            if command.rules_version >= DEVICE_RULES:
                note_end(edit, alloc, changed, now=command.now)
    for node_id in may_report:
        _note_contact(edit, node_id)
    return put_evaluations(edit, evaluations)


def _is_own(alloc: Allocation | None, update: AllocUpdate) -> bool:
    """Whether the reporting node may make this report: the allocation runs there."""
    return alloc is not None and alloc.node_id == update.node_id and update.client_status in CLIENT_TELLS


def _may_report(edit: Edit, node_id: str) -> bool:
    node: Node | None = edit.tx.get(Tables.nodes, node_id)
    return node is None or node.status not in status.NODE_UNRESPONSIVE


def _note_contact(edit: Edit, node_id: str) -> None:
    """Record that the node has reported since it was last lost; this index serves no other purpose.

    A node that is ready and has reported since keeps its row, so that its reports do not rewrite it each time. The
    index is visible in the node's row, so blocking queries for the node wake (invariant A6).
    """
    node: Node | None = edit.tx.get(Tables.nodes, node_id)
    if node is None or node.status in status.NODE_UNRESPONSIVE:
        return
    if node.status != status.NODE_READY or not node.last_alloc_update_index:
        edit.tx.put(Tables.nodes, node_id, replace(node, last_alloc_update_index=edit.index, modify_index=edit.index))


def with_report(alloc: Allocation, update: AllocUpdate, *, index: int) -> Allocation:
    """The allocation with its client's report; unchanged when the report is obsolete."""
    if is_client_terminal(alloc) and update.client_status != alloc.client_status:
        if alloc.client_status != status.CLIENT_LOST:
            return alloc
        return replace(
            alloc,
            task_states=update.task_states or alloc.task_states,
            accounting=update.accounting or alloc.accounting,
        )
    return replace(
        alloc,
        client_status=update.client_status,
        client_description=update.client_description,
        task_states=update.task_states or alloc.task_states,
        network_status=update.network_status or alloc.network_status,
        accounting=update.accounting or alloc.accounting,
        deployment_status=_reported_health(alloc.deployment_status, update.deployment_status, index=index),
    )


def with_idle_report(
    alloc: Allocation, update: AllocUpdate, index: int, now: int, *, counts_withdrawals: bool
) -> Allocation:
    """The allocation with its client's report on idle devices; unchanged if the report has the same content."""
    report, idle_state = update.idle, alloc.idle
    if report is None and idle_state is not None and idle_state.idle_for > 0:
        # The client does not measure any more, for example after a downgrade: an unmeasured device is not idle.
        report = IdleReport()
    if report is None or is_terminal(alloc) or (idle_state is not None and idle_state.action):
        return alloc
    idle_state, text = idle_state or IdleState(), report.text[:IDLE_TEXT_MAX]
    if report.idle_for > 0 and is_of_earlier_policy(idle_state, report.job_version):
        return alloc
    if (report.idle_for, text) == (idle_state.idle_for, idle_state.text):
        return alloc
    if report.idle_for <= 0:
        # It is used again: the announced end is void; only the counts remain.
        spared_count = idle_state.spared_by_use + (counts_withdrawals and idle_state.ends_at > 0)
        return replace(alloc, idle=replace(unmeasured(idle_state, index), spared_by_use=spared_count))
    since = idle_state.since or UnixNano(max(now - report.idle_for, alloc.create_time, 1))
    idle = replace(idle_state, idle_for=report.idle_for, text=text, since=since, report_index=index)
    return replace(alloc, idle=idle)


def _reported_health(
    stored: AllocDeploymentStatus | None, reported: AllocDeploymentStatus | None, *, index: int
) -> AllocDeploymentStatus | None:
    if reported is None or reported.healthy is None:
        return stored
    return with_health(stored, healthy=reported.healthy, timestamp=reported.timestamp, index=index)


def with_health(
    stored: AllocDeploymentStatus | None, *, healthy: bool, timestamp: int, index: int
) -> AllocDeploymentStatus:
    """The deployment status after a health verdict; unhealthy is final."""
    was = stored or AllocDeploymentStatus()
    if was.healthy is False or was.healthy == healthy:
        return was
    return replace(was, healthy=healthy, timestamp=timestamp, modify_index=index)


def _set_transitions(edit: Edit, command: SetDesiredTransitions) -> Rejected | None:
    existing = [alloc for alloc in map(edit.alloc, sorted(command.transitions)) if alloc is not None]
    if command.transitions and not existing:
        return not_found(f'allocation "{min(command.transitions)}" not found')
    for alloc in existing:
        changed = replace(
            alloc,
            desired_transition=_merged(alloc.desired_transition, command.transitions[alloc.id]),
            modify_index=edit.index,
            modify_time=command.now or alloc.modify_time,
        )
        edit.put_alloc(alloc, changed)
    return put_evaluations(edit, command.evaluations)


def _merged(stored: DesiredTransition, requested: DesiredTransition) -> DesiredTransition:
    fields = DesiredTransition.__struct_fields__
    return DesiredTransition(**{field: getattr(stored, field) or getattr(requested, field) for field in fields})
