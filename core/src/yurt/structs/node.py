"""Nodes: the resources, attributes and status of client machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from yurt.sdk.value import OWN, Duration, Timestamp, Value, no_entries, replace, spelled
from yurt.structs.network import NetworkResource
from yurt.structs.status import Eligibility, NodeStatus

SHUTDOWN_META: Final = "yurt.shutdown"
"""The key of drain metadata that marks a drain by a shutdown of the node's agent; it ends when the agent is back."""


class DriverInfo(Value):
    """A driver on a node: whether it is detected and healthy, and the reason."""

    attributes: Mapping[str, str] = no_entries()
    detected: bool = False
    healthy: bool = False
    health_description: str = ""
    update_time: Timestamp = 0


class NodeEvent(Value):
    """An event in the history of a node; the last ten are kept."""

    message: str = ""
    subsystem: str = ""
    details: Mapping[str, str] = no_entries()
    timestamp: Timestamp = 0
    create_index: int = 0


class DrainSpec(Value):
    """A requested drain; a deadline below 0 forces it, 0 waits without limit."""

    deadline: Duration = Duration(0)
    ignore_system_jobs: bool = False


class DrainStrategy(Value):
    """A drain in progress."""

    drain_spec: DrainSpec = DrainSpec()
    force_deadline: Timestamp = 0
    started_at: Timestamp = 0


class DrainMetadata(Value):
    """The last drain of a node."""

    started_at: Timestamp = 0
    updated_at: Timestamp = 0
    status: str = ""
    accessor_id: str = ""
    meta: Mapping[str, str] = no_entries()


class HostVolumeInfo(Value):
    """A directory of a node that it offers as a volume."""

    path: str = ""
    read_only: bool = False
    id: str = ""


NETWORK_PROBLEM = "unique.network.missing."
"""The prefix of attributes with the reason why a node does not offer a mode of group networks; the mode follows."""


class HostNetworkInfo(Value):
    """A named network of a node."""

    name: str = ""
    cidr: str = ""
    interface: str = ""
    reserved_ports: str = ""


class NodeCpuResources(
    Value,
    rename=spelled(cpu_shares="CpuShares", total_cpu_cores="TotalCpuCores", reservable_cpu_cores="ReservableCpuCores"),
):
    """Compute of a node: total MHz and cores."""

    cpu_shares: int = 0
    total_cpu_cores: int = 0
    reservable_cpu_cores: tuple[int, ...] = ()


class NodeMemoryResources(Value):
    """Memory of a node."""

    memory_mb: int = 0


class NodeDiskResources(Value):
    """Disk space of a node for allocations."""

    disk_mb: int = 0


class Attribute(Value, rename=spelled(float_val="Float", int_val="Int", string_val="String", bool_val="Bool")):
    """A typed value with a unit, as devices publish them; one of the values is set."""

    float_val: float | None = None
    int_val: int | None = None
    string_val: str | None = None
    bool_val: bool | None = None
    unit: str = ""


class NodeDeviceLocality(Value):
    """The bus address of a device."""

    pci_bus_id: str = ""


DeviceState: TypeAlias = Literal["healthy", "suspect", "degraded", "failed", "probation"]
DEVICE_STATES: Final[tuple[DeviceState, ...]] = ("healthy", "suspect", "degraded", "failed", "probation")
ShownDeviceState: TypeAlias = DeviceState | Literal["disabled"]
SHOWN_DEVICE_STATES: Final[tuple[ShownDeviceState, ...]] = (*DEVICE_STATES, "disabled")
PLACEABLE_STATES: Final[tuple[DeviceState, ...]] = ("healthy", "suspect")
"""The states in which a device may be given to new allocations."""


class DeviceChange(Value):
    """A change of a device's state and its reason."""

    at: Timestamp = 0
    state: DeviceState = "healthy"
    reason: str = ""


class DeviceTrial(Value):
    """The time after a fault in which a device gets only groups that lose little if it fails again: those that can
    restart (`requeue`, `checkpoint`), and those that run for `run_max` at most (`max_run_duration`).

    It lasts while the client reports it; `until` is for readers: no server compares it with a clock.
    """

    until: Timestamp = 0
    run_max: Duration = Duration(0)


class DeviceHealth(Value):
    """A device's state as its client decided it (`yurt.lifecycle.device_health`), with the last 16 changes, oldest
    first.

    `acknowledged_mark` is the key of the mark of the servers that the client has acted on last. `trial` is None for a
    device that may have any work, or none.
    """

    state: DeviceState = "healthy"
    reason: str = ""
    since: Timestamp = 0
    acknowledged_mark: str = ""
    history: tuple[DeviceChange, ...] = ()
    trial: Annotated[DeviceTrial | None, OWN] = None


def unhealthy_reason(health: DeviceHealth) -> str:
    """The reason why nothing may be placed on a device, by its client's report; "" when something may."""
    if health.state in PLACEABLE_STATES:
        return ""
    return f"on probation: {health.reason}" if health.state == "probation" else health.reason or "no reason given"


class DeviceMark(Value):
    """The servers' own information on a device, in addition to its client's report.

    `disabled`: an operator has taken it out. `suspected`: jobs in a row failed on it; until the client acknowledges
    that, nothing is placed on it. `enabled`: an operator has put it back, and its client is to test it again. "" has
    only `failed_jobs`: the different jobs that have failed on it since one completed, by a hash of namespace and job:
    who may read nodes need not know their names.
    """

    kind: Literal["", "disabled", "suspected", "enabled"] = ""
    reason: str = ""
    at: Timestamp = 0
    index: int = 0
    failed_jobs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A key that distinguishes marks in all cases: indexes are not unique after a restore or in a new cluster."""
        return f"{self.index}/{self.at}"


class NodeDevice(Value):
    """One device instance; `attributes` are those that differ within its group.

    `health` is None where a client does not report it (an older agent).
    """

    id: str = ""
    healthy: bool = False
    health_description: str = ""
    locality: NodeDeviceLocality | None = None
    attributes: Annotated[Mapping[str, Attribute], OWN] = no_entries()
    health: Annotated[DeviceHealth | None, OWN] = None


def shown_state(device: NodeDevice, mark: DeviceMark | None) -> ShownDeviceState:
    """A device's state by its client, or by a mark of the servers that its client does not know yet."""
    if mark is not None and mark.kind == "disabled":
        return "disabled"
    if mark is not None and mark.kind == "suspected":
        return "suspect"
    if device.health is None:
        return "healthy" if device.healthy else "failed"
    return device.health.state


class NodeDeviceResource(Value):
    """The instances of one kind of device."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    instances: tuple[NodeDevice, ...] = ()
    attributes: Mapping[str, Attribute] = no_entries()


class NodeNetworkAddress(Value):
    """An address of a node and the alias of its network: `default`, or the name of a host network."""

    family: str = ""
    alias: str = ""
    address: str = ""
    reserved_ports: str = ""
    gateway: str = ""


class NodeNetworkResource(Value):
    """An interface with named addresses, or a mode of group networks; speed in Mbit/s."""

    mode: str = ""
    device: str = ""
    mac_address: str = ""
    speed: int = 0
    addresses: tuple[NodeNetworkAddress, ...] = ()


class ProcessorCore(Value):
    """A core; speeds in MHz, 0 when unknown. `grade`: performance or efficiency core."""

    socket_id: int = 0
    node_id: int = 0
    id: int = 0
    grade: bool = True
    disable: bool = False
    base_speed: int = 0
    max_speed: int = 0
    guess_speed: int = 0


class ProcessorTopology(Value):
    """The processors of a node: NUMA nodes, the distances between them, and cores."""

    nodes: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    cores: tuple[ProcessorCore, ...] = ()
    override_total_compute: int = 0
    override_withold_compute: int = 0


class NodeProcessorResources(Value):
    """The processors of a node; unknown for older agents, which did not report them."""

    topology: ProcessorTopology | None = None


class NodeResources(Value, rename=spelled(cpu="Cpu")):
    """All resources of a node."""

    cpu: NodeCpuResources = NodeCpuResources()
    memory: NodeMemoryResources = NodeMemoryResources()
    disk: NodeDiskResources = NodeDiskResources()
    networks: tuple[NetworkResource, ...] = ()
    node_networks: tuple[NodeNetworkResource, ...] = ()
    devices: tuple[NodeDeviceResource, ...] = ()
    processors: NodeProcessorResources = NodeProcessorResources()
    min_dynamic_port: int = 20000
    max_dynamic_port: int = 32000


def _trial_alone(health: DeviceHealth | None) -> DeviceHealth | None:
    return None if health is None or health.trial is None else DeviceHealth(trial=health.trial)


def without_device_notes(resources: NodeResources) -> NodeResources:
    """Resources without the reasons and history of devices, which do not affect placement; with their trials, which
    do."""

    def plain(group: NodeDeviceResource) -> NodeDeviceResource:
        return replace(
            group,
            instances=tuple(
                replace(each, health=_trial_alone(each.health), health_description="") for each in group.instances
            ),
        )

    return replace(resources, devices=tuple(map(plain, resources.devices))) if resources.devices else resources


class NodeReservedCpuResources(Value, rename=spelled(cpu_shares="CpuShares")):
    """CPU reserved for the system."""

    cpu_shares: int = 0


class NodeReservedMemoryResources(Value):
    """Memory reserved for the system."""

    memory_mb: int = 0


class NodeReservedDiskResources(Value):
    """Disk space reserved for the system."""

    disk_mb: int = 0


class NodeReservedNetworkResources(Value):
    """Ports reserved for the system, as ranges: "22,80,8500-8600"."""

    reserved_host_ports: str = ""


class NodeReservedResources(Value, rename=spelled(cpu="Cpu")):
    """The resources of a node that allocations cannot use."""

    cpu: NodeReservedCpuResources = NodeReservedCpuResources()
    memory: NodeReservedMemoryResources = NodeReservedMemoryResources()
    disk: NodeReservedDiskResources = NodeReservedDiskResources()
    networks: NodeReservedNetworkResources = NodeReservedNetworkResources()


class CSINodeInfo(Value):
    """The capabilities of a CSI node plugin."""

    id: str = ""
    max_volumes: int = 0
    accessible_topology: CSITopology | None = None
    requires_node_stage_volume: bool = False
    supports_stats: bool = False
    supports_expand: bool = False
    supports_condition: bool = False


class CSIControllerInfo(Value):
    """The capabilities of a CSI controller plugin."""

    supports_create_delete: bool = False
    supports_attach_detach: bool = False
    supports_list_volumes: bool = False
    supports_get_capacity: bool = False
    supports_create_delete_snapshot: bool = False
    supports_list_snapshots: bool = False
    supports_clone: bool = False
    supports_read_only_attach: bool = False
    supports_expand: bool = False
    supports_list_volumes_attached_nodes: bool = False
    supports_condition: bool = False
    supports_get: bool = False


class CSITopology(Value):
    """Topology segments from which a CSI volume is reachable."""

    segments: Mapping[str, str] = no_entries()


class CSIInfo(Value):
    """A CSI plugin on a node."""

    plugin_id: str = ""
    alloc_id: str = ""
    healthy: bool = False
    health_description: str = ""
    update_time: Timestamp = 0
    requires_controller_plugin: bool = False
    requires_topologies: bool = False
    controller_info: CSIControllerInfo | None = None
    node_info: CSINodeInfo | None = None
    provider: Annotated[str, OWN] = ""
    provider_version: Annotated[str, OWN] = ""
    """The version that the plugin reports for itself."""


class Node(Value):
    """A client machine."""

    id: str = ""
    secret_id: str = ""
    datacenter: str = "dc1"
    name: str = ""
    http_addr: str = ""
    tls_enabled: bool = False
    attributes: Mapping[str, str] = no_entries()
    node_resources: NodeResources = NodeResources()
    reserved_resources: NodeReservedResources = NodeReservedResources()
    links: Mapping[str, str] = no_entries()
    meta: Mapping[str, str] = no_entries()
    node_class: str = ""
    computed_class: str = ""
    node_pool: str = "default"
    cgroup_parent: str = ""
    drain_strategy: DrainStrategy | None = None
    scheduling_eligibility: Eligibility = "eligible"
    status: NodeStatus = "initializing"
    status_description: str = ""
    status_updated_at: int = 0
    events: tuple[NodeEvent, ...] = ()
    drivers: Mapping[str, DriverInfo] = no_entries()
    host_volumes: Mapping[str, HostVolumeInfo] = no_entries()
    gc_volumes_on_node_gc: bool = False
    host_networks: Mapping[str, HostNetworkInfo] = no_entries()
    csi_controller_plugins: Mapping[str, CSIInfo] = no_entries()
    csi_node_plugins: Mapping[str, CSIInfo] = no_entries()
    last_drain: DrainMetadata | None = None
    last_missed_heartbeat_index: int = 0
    last_alloc_update_index: int = 0
    device_marks: Annotated[Mapping[str, DeviceMark], OWN] = no_entries()
    """Marks by device, `vendor/type/name/id`."""
    create_index: int = 0
    modify_index: int = 0
    node_max_allocs: int = 0
