"""Allocations: a group of tasks placed on a node, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import INTERNAL, OWN, TRUE_OR_NULL, Duration, Timestamp, UnixNano, Value, no_entries, spelled
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.network import DNSConfig, NetworkResource, PortMapping
from yurt.structs.status import ClientStatus, DesiredStatus, TaskStatus


class AllocatedCpuResources(Value, rename=spelled(cpu_shares="CpuShares")):
    """Allocated CPU in MHz, and reserved cores when the task requested cores."""

    cpu_shares: int = 0
    reserved_cores: tuple[int, ...] = ()


class AllocatedMemoryResources(Value):
    """Allocated memory in MiB; `memory_max_mb` is the limit under oversubscription."""

    memory_mb: int = 0
    memory_max_mb: int = 0


class AllocatedDeviceResource(Value):
    """Allocated device instances, whole or as a share: kind (`mps`, `slice`, `mig`), MiB, percent of compute.

    `part_milli` is the part of each device that a share counts as, in thousandths: the larger of its parts of the
    device's memory and of its compute, rounded up. 0: unknown, as in allocations that older servers placed.
    """

    vendor: str = ""
    type: str = ""
    name: str = ""
    device_ids: tuple[str, ...] = ()
    share: Annotated[str, OWN] = ""
    memory_mb: Annotated[int, OWN] = 0
    compute: Annotated[int, OWN] = 0
    part_milli: Annotated[int, OWN] = 0


class AllocatedTaskResources(Value, rename=spelled(cpu="Cpu")):
    """Resources allocated to one task."""

    cpu: AllocatedCpuResources = AllocatedCpuResources()
    memory: AllocatedMemoryResources = AllocatedMemoryResources()
    networks: tuple[NetworkResource, ...] = ()
    devices: tuple[AllocatedDeviceResource, ...] = ()


class AllocatedSharedResources(Value):
    """Resources that all tasks of an allocation share."""

    disk_mb: int = 0
    networks: tuple[NetworkResource, ...] = ()
    ports: tuple[PortMapping, ...] = ()


class AllocatedResources(Value):
    """All resources of an allocation."""

    tasks: Mapping[str, AllocatedTaskResources] = no_entries()
    shared: AllocatedSharedResources = AllocatedSharedResources()


class AllocDeploymentStatus(Value):
    """Health of an allocation within its deployment; None while unknown."""

    healthy: bool | None = None
    timestamp: Timestamp = 0
    canary: bool = False
    modify_index: int = 0


class AllocNetworkStatus(Value):
    """The address of an allocation's own network namespace."""

    interface_name: str = ""
    address: str = ""
    address_ipv6: str = ""
    dns: DNSConfig | None = None


class AllocState(Value):
    """One entry of the append-only log of server-side status changes (lost, unknown, reconnected)."""

    field: str = "ClientStatus"
    value: str = ""
    time: Timestamp = 0


class DesiredTransition(Value):
    """A transition that the servers request of a running allocation: migrate, reschedule, no shutdown delay."""

    migrate: Annotated[bool, TRUE_OR_NULL] = False
    reschedule: Annotated[bool, TRUE_OR_NULL] = False
    force_reschedule: Annotated[bool, TRUE_OR_NULL] = False
    no_shutdown_delay: Annotated[bool, TRUE_OR_NULL] = False
    migrate_disable_placement: Annotated[bool, TRUE_OR_NULL] = False


class RescheduleEvent(Value):
    """One replacement in the history of an allocation."""

    reschedule_time: UnixNano = UnixNano(0)
    prev_alloc_id: str = ""
    prev_node_id: str = ""
    delay: Duration = Duration(0)


class RescheduleTracker(Value):
    """The replacements that led to an allocation."""

    events: tuple[RescheduleEvent, ...] = ()
    last_reschedule: str = ""
    requeues: Annotated[int, OWN] = 0
    """The number of times that a predecessor was preempted and requeued."""
    lost: Annotated[Duration, OWN] = Duration(0)
    """The run time lost by these preemptions, in nanoseconds: from the last checkpoint to the end of each
    predecessor."""


class TaskEvent(Value):
    """An event in the history of a task; the last ten are kept."""

    type: str = ""
    time: UnixNano = UnixNano(0)
    display_message: str = ""
    details: Mapping[str, str] = no_entries()
    message: str = ""
    fails_task: bool = False
    restart_reason: str = ""
    setup_error: str = ""
    driver_error: str = ""
    driver_message: str = ""
    exit_code: int = 0
    signal: int = 0
    kill_reason: str = ""
    kill_timeout: Duration = Duration(0)
    kill_error: str = ""
    start_delay: Duration = Duration(0)
    download_error: str = ""
    validation_error: str = ""
    disk_limit: int = 0
    disk_size: int = 0
    failed_sibling: str = ""
    vault_error: str = ""
    task_signal_reason: str = ""
    task_signal: str = ""
    generic_source: str = ""


class TaskState(Value):
    """The state of a task as its client reported it."""

    state: TaskStatus = "pending"
    failed: bool = False
    restarts: int = 0
    last_restart: Timestamp = 0
    started_at: Timestamp = 0
    finished_at: Timestamp = 0
    events: tuple[TaskEvent, ...] = ()
    paused: str = ""
    checkpointed_at: Annotated[Timestamp, OWN] = 0
    """The time of the last change in the group's checkpoint directory."""


class IdleState(Value):
    """The idleness of an allocation's devices, as its client measures it, and the resulting decisions."""

    idle_for: Duration = Duration(0)
    """Nanoseconds of uninterrupted idleness at the last report, by the client's monotonic clock; 0: in use."""
    since: UnixNano = UnixNano(0)
    """The begin of the idleness, by the servers' clock."""
    text: str = ""
    """The measurement as text."""
    report_index: int = 0
    """The index of the last report; a command that ends the allocation names it."""
    ends_at: UnixNano = UnixNano(0)
    """The announced end; 0 without an announcement."""
    reason: str = ""
    """The reason of the end."""
    action: str = ""
    """The action of an end that was carried out: `requeue`, `stop` or `shrink`."""
    waiting_eval: Annotated[str, INTERNAL] = ""
    """The waiting evaluation for which it ends, if its policy requires one."""
    kept_until: UnixNano = UnixNano(0)
    keeps: int = 0
    """How often its end was put off while others waited."""
    spared_by_use: int = 0
    """How often its announced end was withdrawn because its devices were used again."""
    spared_by_keep: int = 0
    """How often because it was kept."""
    kept_free: Annotated[bool, INTERNAL] = False
    """Whether the last keep call found no waiting job; it holds only until one waits."""
    policy_version: Annotated[int, INTERNAL] = 0
    """The job version that brought the present policy by an update in place; reports under earlier ones are ignored."""


class Allocation(Value):
    """A task group placed on a node."""

    id: str = ""
    namespace: str = ""
    eval_id: str = ""
    name: str = ""
    node_id: str = ""
    node_name: str = ""
    job_id: str = ""
    job: Job | None = None
    task_group: str = ""
    allocated_resources: AllocatedResources = AllocatedResources()
    services: Mapping[str, str] = no_entries()
    metrics: AllocationMetric | None = None
    desired_status: DesiredStatus = "run"
    desired_description: str = ""
    desired_transition: DesiredTransition = DesiredTransition()
    client_status: ClientStatus = "pending"
    client_description: str = ""
    task_states: Mapping[str, TaskState] = no_entries()
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    followup_eval_id: str = ""
    previous_allocation: str = ""
    next_allocation: str = ""
    reschedule_tracker: RescheduleTracker | None = None
    alloc_states: tuple[AllocState, ...] = ()
    network_status: AllocNetworkStatus | None = None
    accounting: Annotated[DeviceAccounting | None, OWN] = None
    """The measured use of its devices, as its client reported it: at the end, and at growing intervals before."""
    preempted_allocations: tuple[str, ...] = ()
    preempted_by_allocation: str = ""
    idle: Annotated[IdleState | None, OWN] = None
    create_index: int = 0
    modify_index: int = 0
    alloc_modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)


def has_devices(alloc: Allocation) -> bool:
    """Whether an allocation has allocated devices."""
    return any(task.devices for task in alloc.allocated_resources.tasks.values())
