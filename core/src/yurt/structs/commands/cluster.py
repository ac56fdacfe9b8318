"""Commands on namespaces, node pools, cluster-wide configurations and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.value import UnixNano
from yurt.structs.cluster import AutopilotConfiguration, Namespace, NodePool, SchedulerConfiguration
from yurt.structs.commands.base import Command, EventType
from yurt.structs.quota import QuotaSpec


class UpsertNamespaces(Command, tag=True):
    """Create or change namespaces."""

    namespaces: tuple[Namespace, ...]


class DeleteNamespaces(Command, tag=True):
    """Delete empty namespaces."""

    names: tuple[str, ...]


class UpsertQuotas(Command, tag=True):
    """Create or change quotas; their limits include their hashes."""

    quotas: tuple[QuotaSpec, ...]
    is_copy: bool = False
    """Whether they come from another region, which has checked their relations: they may arrive in any order."""


class DeleteQuotas(Command, tag=True):
    """Delete quotas that no namespace uses."""

    names: tuple[str, ...]


class UpsertNodePools(Command, tag=True):
    """Create or change node pools."""

    event_type = EventType("NodePoolUpserted")

    pools: tuple[NodePool, ...]
    now: UnixNano = UnixNano(0)
    """The begin of the usage of a new fair-share queue, unix ns; 0 for pools from another region."""


class DeleteNodePools(Command, tag=True):
    """Delete node pools without nodes and jobs."""

    event_type = EventType("NodePoolDeleted", publishes_deletion=True)

    names: tuple[str, ...]


class SetSchedulerConfiguration(Command, tag=True):
    """Replace the scheduler configuration; with `check_index`, only if it was last changed at that index."""

    configuration: SchedulerConfiguration
    check_index: int | None = None


class SetAutopilotConfiguration(Command, tag=True):
    """Replace autopilot's configuration; with `check_index`, only if it was last changed at that index."""

    configuration: AutopilotConfiguration
    check_index: int | None = None


class RecordPeriodicLaunch(Command, tag=True):
    """Record the last launch of a periodic job, so that no launch happens twice."""

    namespace: str
    job_id: str
    launched_at: UnixNano


class StoreSchema(Command, tag=True):
    """A driver's option schema, by digest."""

    driver: str
    digest: str
    schema: Mapping[str, Any]


class SetClusterID(Command, tag=True):
    """Give the cluster its ID; rejected once it has one."""

    cluster_id: str


class KeepAlive(Command, tag=True):
    """Advance the index without another change."""


ClusterCommand = (
    UpsertNamespaces
    | DeleteNamespaces
    | UpsertNodePools
    | DeleteNodePools
    | UpsertQuotas
    | DeleteQuotas
    | SetSchedulerConfiguration
    | SetAutopilotConfiguration
    | RecordPeriodicLaunch
    | StoreSchema
    | SetClusterID
    | KeepAlive
)
