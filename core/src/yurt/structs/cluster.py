"""Namespaces, node pools and the scheduler configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from yurt.sdk.value import NANOSECONDS, WHEN_SET, Duration, UnixNano, Value, no_entries
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.batch_queue import BatchQueue


class NamespaceCapabilities(Value):
    """Drivers and network modes that a namespace permits or forbids."""

    enabled_task_drivers: tuple[str, ...] = ()
    disabled_task_drivers: tuple[str, ...] = ()
    enabled_network_modes: tuple[str, ...] = ()
    disabled_network_modes: tuple[str, ...] = ()


class NamespaceNodePoolConfiguration(Value):
    """The node pools that a namespace's jobs may use; names may contain `*`."""

    default: str = ""
    """The pool of jobs that do not name one."""
    allowed: tuple[str, ...] | None = None
    """The pools that jobs may use. None: all; empty: only the default."""
    denied: tuple[str, ...] | None = None


class Namespace(Value):
    """A scope for jobs, variables, volumes and permissions."""

    name: str = ""
    description: str = ""
    quota: str = ""
    capabilities: NamespaceCapabilities | None = None
    node_pool_configuration: NamespaceNodePoolConfiguration | None = None
    vault_configuration: Mapping[str, Any] | None = None
    consul_configuration: Mapping[str, Any] | None = None
    meta: Mapping[str, str] = no_entries()
    create_index: int = 0
    modify_index: int = 0
    required_extra_claims: Mapping[str, str] = no_entries()
    optional_extra_claims: Mapping[str, str] = no_entries()
    idle: Annotated[IdlePolicy | None, WHEN_SET] = None
    """The default policy on idle devices of its jobs."""


class NodePoolSchedulerConfiguration(Value):
    """Settings with which a node pool overrides the scheduler's configuration."""

    scheduler_algorithm: str = ""
    memory_oversubscription_enabled: bool | None = None


DEFAULT_NODE_IDENTITY_TTL: Final = Duration(24 * 3600 * NANOSECONDS)
"""The lifetime of node identities in a pool that does not set one."""


class NodePool(Value):
    """A named set of nodes."""

    name: str = ""
    description: str = ""
    meta: Mapping[str, str] = no_entries()
    node_identity_ttl: Duration = Duration(0)
    scheduler_configuration: NodePoolSchedulerConfiguration | None = None
    batch_queue: Annotated[BatchQueue | None, WHEN_SET] = None
    """The queue of batch jobs that wait for the pool; None: jobs do not queue."""
    idle: Annotated[IdlePolicy | None, WHEN_SET] = None
    """The default policy on idle devices of its jobs, if their namespace has none."""
    create_index: int = 0
    modify_index: int = 0


class ClusterMetadata(Value):
    """The ID of the cluster whose log this is, made once. A restored snapshot does not bring another one."""

    cluster_id: str = ""
    create_index: int = 0
    modify_index: int = 0


class RestoreChunk(Value):
    """A piece of a snapshot that is being restored."""

    data: bytes = b""


class PreemptionConfig(Value):
    """Which schedulers may preempt."""

    system_scheduler_enabled: bool = True
    sys_batch_scheduler_enabled: bool = False
    batch_scheduler_enabled: bool = False
    service_scheduler_enabled: bool = False


class SchedulerConfiguration(Value):
    """Settings of the scheduler that operators change at run time."""

    scheduler_algorithm: str = "binpack"
    preemption_config: PreemptionConfig = PreemptionConfig()
    memory_oversubscription_enabled: bool = False
    reject_job_registration: bool = False
    pause_eval_broker: bool = False
    node_limit_for_feasibility_checks: int = 100
    create_index: int = 0
    modify_index: int = 0


class AutopilotConfiguration(Value):
    """The configuration of autopilot, which operators change at run time. Durations in nanoseconds."""

    cleanup_dead_servers: bool = True
    last_contact_threshold: Duration = Duration(200_000_000)
    max_trailing_logs: int = 250
    min_quorum: int = 0
    server_stabilization_time: Duration = Duration(10_000_000_000)
    enable_redundancy_zones: bool = False
    disable_upgrade_migration: bool = False
    enable_custom_upgrades: bool = False
    create_index: int = 0
    modify_index: int = 0


class PeriodicLaunch(Value):
    """The last launch of a periodic job, unix ns."""

    namespace: str = "default"
    id: str = ""
    launch: UnixNano = UnixNano(0)
    create_index: int = 0
    modify_index: int = 0


class DriverSchema(Value):
    """The options that a driver accepts, identified by their digest."""

    driver: str = ""
    digest: str = ""
    schema: Mapping[str, Any] = no_entries()
    create_index: int = 0
