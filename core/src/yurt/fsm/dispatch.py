"""`apply`: the step from one state to the next by a log command, the same on every replica.

A command applies as a whole or not at all. One that does not fit the state is `Rejected` with a kind (not_found,
conflict, invalid, denied, stale) and changes nothing but the index. Asserts guard this code; the content of a command
never trips one (invariant A11).
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from yurt.fsm.acl import apply_acl
from yurt.fsm.allocs import apply_alloc
from yurt.fsm.basis import changed_basis
from yurt.fsm.cluster import apply_cluster
from yurt.fsm.csi_volumes import apply_csi_volume
from yurt.fsm.deployments import apply_deployment
from yurt.fsm.edit import Edit
from yurt.fsm.evals import apply_evaluation
from yurt.fsm.host_volumes import apply_host_volume
from yurt.fsm.job_commands import apply_job
from yurt.fsm.nodes import apply_node
from yurt.fsm.restore import apply_restore
from yurt.fsm.services import apply_service
from yurt.fsm.variables import apply_variable
from yurt.state import Changes, Snapshot
from yurt.structs.commands import (
    AclCommand,
    AllocCommand,
    AnyCommand,
    Applied,
    ClusterCommand,
    CsiVolumeCommand,
    DeploymentCommand,
    EvaluationCommand,
    HostVolumeCommand,
    JobCommand,
    NodeCommand,
    Rejected,
    RestoreCommand,
    Result,
    ServiceCommand,
    VariableCommand,
)


class ApplyResult(msgspec.Struct, frozen=True):
    """The state after a command, the changes, and whether the command was accepted."""

    state: Snapshot
    changes: Changes
    result: Result


def apply(state: Snapshot, command: AnyCommand, *, index: int) -> ApplyResult:
    """The state after `command`, which has `index` in the log."""
    rejected = changed_basis(state, command.based_on) if command.based_on else None
    edit = Edit(state, index, rules_version=command.rules_version)
    if rejected is None:
        rejected = _dispatch(edit, command)
    if rejected is not None:
        # The edits made before the refusal are dropped with their transaction: a rejected command changes no row.
        return ApplyResult(state.edit(index).commit(command.rules_version), (), rejected)
    after, changes = edit.finish()
    assert after.index == index, (after.index, index)
    return ApplyResult(after, changes, Applied(index=index))


def _dispatch(edit: Edit, command: AnyCommand) -> Rejected | None:
    if isinstance(command, AllocCommand):
        return apply_alloc(edit, command)
    if isinstance(command, EvaluationCommand):
        return apply_evaluation(edit, command)
    if isinstance(command, JobCommand):
        return apply_job(edit, command)
    if isinstance(command, NodeCommand):
        return apply_node(edit, command)
    if isinstance(command, ServiceCommand):
        return apply_service(edit, command)
    if isinstance(command, VariableCommand):
        return apply_variable(edit, command)
    if isinstance(command, HostVolumeCommand):
        return apply_host_volume(edit, command)
    if isinstance(command, CsiVolumeCommand):
        return apply_csi_volume(edit, command)
    if isinstance(command, DeploymentCommand):
        return apply_deployment(edit, command)
    if isinstance(command, RestoreCommand):
        return apply_restore(edit, command)
    if isinstance(command, AclCommand):
        return apply_acl(edit, command)
    if isinstance(command, ClusterCommand):
        return apply_cluster(edit, command)
    assert_never(command)
