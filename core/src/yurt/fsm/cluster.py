"""Namespaces, node pools, the scheduler's configuration, periodic launches and driver schemas."""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.bookkeeping.accounting import forget_namespace
from yurt.fsm.edit import Edit
from yurt.fsm.periodic import record_launch
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.state.tables import BUILT_IN_POOLS, DEFAULT_NAMESPACE
from yurt.structs import status
from yurt.structs.cluster import (
    AutopilotConfiguration,
    ClusterMetadata,
    DriverSchema,
    Namespace,
    NodePool,
    SchedulerConfiguration,
)
from yurt.structs.commands import (
    ClusterCommand,
    DeleteNamespaces,
    DeleteNodePools,
    DeleteQuotas,
    KeepAlive,
    RecordPeriodicLaunch,
    Rejected,
    SetAutopilotConfiguration,
    SetClusterID,
    SetSchedulerConfiguration,
    StoreSchema,
    UpsertNamespaces,
    UpsertNodePools,
    UpsertQuotas,
)
from yurt.structs.rules import NAMESPACE_RULES


def apply_cluster(edit: Edit, command: ClusterCommand) -> Rejected | None:
    """Apply a command on cluster-wide objects."""
    match command:
        case UpsertNamespaces():
            return _put_namespaces(edit, command)
        case DeleteNamespaces():
            return _delete_namespaces(edit, command)
        case UpsertNodePools():
            return _put_node_pools(edit, command)
        case DeleteNodePools():
            return _delete_node_pools(edit, command)
        case UpsertQuotas() | DeleteQuotas():
            from yurt.fsm.quotas.specs import apply_quota

            return apply_quota(edit, command)
        case SetSchedulerConfiguration():
            return _set_scheduler(edit, command)
        case SetAutopilotConfiguration():
            return _set_autopilot(edit, command)
        case RecordPeriodicLaunch():
            return _record_launch(edit, command)
        case StoreSchema():
            return _store_schema(edit, command)
        case SetClusterID():
            return _set_cluster_id(edit, command)
        case KeepAlive():
            return None
        case _:
            assert_never(command)


def _put_namespaces(edit: Edit, command: UpsertNamespaces) -> Rejected | None:
    for namespace in command.namespaces:
        if not namespace.name:
            return invalid("a namespace without a name")
        is_ruled = edit.rules_version >= NAMESPACE_RULES
        if is_ruled and namespace.quota and edit.tx.get(Tables.quotas, namespace.quota) is None:
            return not_found(f'namespace "{namespace.name}" names quota "{namespace.quota}", which does not exist')
        existing: Namespace | None = edit.tx.get(Tables.namespaces, namespace.name)
        created = edit.index if existing is None else existing.create_index
        stored = replace(namespace, create_index=created, modify_index=edit.index)
        edit.tx.put(Tables.namespaces, namespace.name, stored)
    return None


def _delete_namespaces(edit: Edit, command: DeleteNamespaces) -> Rejected | None:
    for name in command.names:
        if name == DEFAULT_NAMESPACE:
            return invalid("default namespace can not be deleted")
        if edit.tx.get(Tables.namespaces, name) is None:
            return not_found(f'namespace "{name}" not found')
        if any(job.namespace == name and job.status != status.JOB_DEAD for job in edit.tx.base.jobs.values()):
            return conflict(f'namespace "{name}" has non-terminal jobs; stop them first')
        if any(namespace == name for namespace, _ in edit.tx.base.variables.keys()):  # noqa: SIM118 - a Table is not a mapping
            return conflict(f'namespace "{name}" holds variables; purge them first')
        if any(volume.namespace == name for volume in edit.tx.base.host_volumes.values()):
            return conflict(f'namespace "{name}" holds host volumes; delete them first')
        if any(namespace == name for namespace, _ in edit.tx.base.csi_volumes.keys()):  # noqa: SIM118
            return conflict(f'namespace "{name}" holds CSI volumes; deregister them first')
        edit.tx.delete(Tables.namespaces, name)
        forget_namespace(edit.tx, name)
    return None


def _put_node_pools(edit: Edit, command: UpsertNodePools) -> Rejected | None:
    edit.now = command.now
    for pool in command.pools:
        if not pool.name:
            return invalid("a node pool without a name")
        if pool.name in BUILT_IN_POOLS:
            return invalid(f'node pool "{pool.name}" is built in and can not be changed')
        existing: NodePool | None = edit.tx.get(Tables.node_pools, pool.name)
        created = edit.index if existing is None else existing.create_index
        edit.tx.put(Tables.node_pools, pool.name, replace(pool, create_index=created, modify_index=edit.index))
    return None


def _delete_node_pools(edit: Edit, command: DeleteNodePools) -> Rejected | None:
    base = edit.tx.base
    for name in command.names:
        if name in BUILT_IN_POOLS:
            return invalid(f'node pool "{name}" is built in and can not be deleted')
        if edit.tx.get(Tables.node_pools, name) is None:
            return not_found(f'node pool "{name}" not found')
        if any(node.node_pool == name for node in base.nodes.values()):
            return conflict(f'node pool "{name}" has nodes; move or purge them first')
        if any(job.node_pool == name and job.status != status.JOB_DEAD for job in base.jobs.values()):
            return conflict(f'node pool "{name}" has non-terminal jobs; stop them first')
        edit.tx.delete(Tables.node_pools, name)
    return None


def _set_scheduler(edit: Edit, command: SetSchedulerConfiguration) -> Rejected | None:
    existing: SchedulerConfiguration | None = edit.tx.get(Tables.scheduler_configurations, "")
    changed_at = 0 if existing is None else existing.modify_index
    if command.check_index is not None and command.check_index != changed_at:
        return conflict(f"the scheduler configuration was changed at index {changed_at}, not {command.check_index}")
    created = edit.index if existing is None else existing.create_index
    stored = replace(command.configuration, create_index=created, modify_index=edit.index)
    edit.tx.put(Tables.scheduler_configurations, "", stored)
    return None


def _set_autopilot(edit: Edit, command: SetAutopilotConfiguration) -> Rejected | None:
    existing: AutopilotConfiguration | None = edit.tx.get(Tables.autopilot_configurations, "")
    changed_at = 0 if existing is None else existing.modify_index
    if command.check_index is not None and command.check_index != changed_at:
        return conflict(f"the autopilot configuration was changed at index {changed_at}, not {command.check_index}")
    created = edit.index if existing is None else existing.create_index
    stored = replace(command.configuration, create_index=created, modify_index=edit.index)
    edit.tx.put(Tables.autopilot_configurations, "", stored)
    return None


def _record_launch(edit: Edit, command: RecordPeriodicLaunch) -> Rejected | None:
    job = edit.job((command.namespace, command.job_id))
    if job is None:
        return not_found(f'job "{command.job_id}" in namespace "{command.namespace}" not found')
    record_launch(edit, job, command.launched_at)
    return None


def _store_schema(edit: Edit, command: StoreSchema) -> Rejected | None:
    key = (command.driver, command.digest)
    if edit.tx.get(Tables.schemas, key) is None:
        schema = DriverSchema(
            driver=command.driver, digest=command.digest, schema=command.schema, create_index=edit.index
        )
        edit.tx.put(Tables.schemas, key, schema)
    return None


def _set_cluster_id(edit: Edit, command: SetClusterID) -> Rejected | None:
    """The first ID stays: two leaders, or a repeated command, give the cluster one."""
    if not command.cluster_id:
        return invalid("the ID of the cluster is empty")
    existing: ClusterMetadata | None = edit.tx.get(Tables.cluster_metadata, "")
    if existing is not None:
        return conflict(f"the cluster has the ID {existing.cluster_id}")
    stored = ClusterMetadata(cluster_id=command.cluster_id, create_index=edit.index, modify_index=edit.index)
    edit.tx.put(Tables.cluster_metadata, "", stored)
    return None
