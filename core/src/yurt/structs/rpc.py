"""Requests and answers between servers and clients.

The ports are `client.ports.ServerPort` and `server.ports.NodePort`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from yurt.sdk.value import WHEN_SET, Duration, Timestamp, Value, no_entries, spelled
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AllocUpdate
from yurt.structs.node import DeviceMark, Node, NodeEvent


class HeldIdentity(Value):
    """A node's present identity: its signing key ("": none), and its times in unix seconds.

    `must_renew`: the node wants another one whatever the times say. `process` names the agent's process, another one
    after each start ("" for an agent that does not say), and `address` is where the server sees it. `known_loss` is the
    index of the node's last loss or restore of which the agent knows (None for an agent that does not say).
    """

    key_id: str = ""
    issued_at: int = 0
    expires_at: int = 0
    must_renew: bool = False
    process: str = ""
    address: str = ""
    known_loss: int | None = None


class RegisterNodeRequest(Value):
    """A node's registration, with the schemas of its drivers by digest.

    `identity` is not set by an agent that knows no identities of nodes; `token` is the one that the node holds.
    """

    node: Node
    schemas: Mapping[str, Mapping[str, Any]] = no_entries()
    identity: HeldIdentity | None = None
    token: str = ""


class NodeReply(Value):
    """The answer to a registration or heartbeat: the time to the next one, the servers, and a renewed identity if any.

    `lost_at` is the index at which the servers last took the node for lost, or replaced its allocations by those of a
    snapshot; 0 for never. `cluster_id` is "" where the cluster has no ID yet.
    """

    heartbeat_ttl_s: float
    index: int
    node_status: str = ""
    servers: tuple[str, ...] = ()
    identity: str = ""
    device_marks: Mapping[str, DeviceMark] = no_entries()
    lost_at: int = 0
    cluster_id: str = ""


class AllocPull(Value):
    """Ids and modify indexes of the allocations of one node, at `index` of the log of a cluster ("": without an ID)."""

    index: int
    allocs: Mapping[str, int]
    cluster_id: str = ""


class UpdateAllocsRequest(Value):
    """Reports on allocations of one node."""

    node_id: str
    updates: tuple[AllocUpdate, ...]


class NodeEventsRequest(Value):
    """Events of one node."""

    node_id: str
    events: tuple[NodeEvent, ...]


class AllocBatch(Value):
    """Allocations with their jobs."""

    allocs: tuple[Allocation, ...]


class FileInfo(Value):
    """One entry of an allocation's directory."""

    name: str
    is_dir: bool
    size: int
    file_mode: str
    mod_time: Timestamp
    content_type: str = ""


FILE_DELETED, FILE_TRUNCATED = "file deleted", "file truncated"
"""The events of a followed file."""


class StreamFrame(Value):
    """A piece of a followed file: data at an offset, or an event (`FILE_DELETED`, `FILE_TRUNCATED`)."""

    offset: int = 0
    data: bytes = b""
    file: str = ""
    file_event: str = ""


class MemoryStats(Value, rename=spelled(rss="RSS")):
    """Memory of a task, bytes."""

    rss: int = 0
    cache: int = 0
    swap: int = 0
    usage: int = 0
    max_usage: int = 0
    measured: tuple[str, ...] = ()


class CpuStats(Value):
    """CPU of a task: percent of one core, and MHz."""

    system_mode: float = 0.0
    user_mode: float = 0.0
    percent: float = 0.0
    total_ticks: float = 0.0
    throttled_periods: int = 0
    throttled_time: int = 0
    measured: tuple[str, ...] = ()


class StatValue(Value):
    """One value of a device; for a fraction, the whole is the denominator."""

    float_numerator_val: Annotated[float | None, WHEN_SET] = None
    float_denominator_val: Annotated[float | None, WHEN_SET] = None
    int_numerator_val: Annotated[int | None, WHEN_SET] = None
    int_denominator_val: Annotated[int | None, WHEN_SET] = None
    string_val: Annotated[str | None, WHEN_SET] = None
    bool_val: Annotated[bool | None, WHEN_SET] = None
    unit: Annotated[str, WHEN_SET] = ""
    desc: Annotated[str, WHEN_SET] = ""


class StatObject(Value):
    """Values of a device by name."""

    nested: Mapping[str, StatObject] = no_entries()
    attributes: Mapping[str, StatValue] = no_entries()


class DeviceStats(Value):
    """Usage of one device."""

    summary: StatValue = StatValue()
    stats: StatObject = StatObject()
    timestamp: Timestamp = 0


class DeviceGroupStats(Value):
    """Usage of the devices of one group, by instance."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    instance_stats: Mapping[str, DeviceStats] = no_entries()


class ResourceUsage(Value, rename=spelled(cpu_stats="CpuStats")):
    """Usage of one task or one allocation."""

    memory_stats: MemoryStats = MemoryStats()
    cpu_stats: CpuStats = CpuStats()
    device_stats: tuple[DeviceGroupStats, ...] = ()


class TaskResourceUsage(Value):
    """Usage of one task at a time (unix ns)."""

    resource_usage: ResourceUsage = ResourceUsage()
    timestamp: int = 0
    pids: Mapping[str, ResourceUsage] = no_entries()


class AllocResourceUsage(Value):
    """Usage of an allocation and of each of its tasks."""

    resource_usage: ResourceUsage = ResourceUsage()
    tasks: Mapping[str, TaskResourceUsage] = no_entries()
    timestamp: int = 0
    accounting: Annotated[DeviceAccounting | None, WHEN_SET] = None
    """The measured use of its devices since its start; None without devices, or from a client that keeps no record."""


class DeviceUsageSeries(Value):
    """Usage of one device in the last minutes, oldest first; None where its plugin reports no value."""

    name: str = ""
    at: tuple[int, ...] = ()
    """The time of each sample, unix ns."""
    memory_mb: tuple[float | None, ...] = ()
    busy_percent: tuple[float | None, ...] = ()


class UsageSeries(Value):
    """Usage of a task or a host in the last minutes, oldest first."""

    at: tuple[int, ...] = ()
    """The time of each sample, unix ns."""
    cpu: tuple[float | None, ...] = ()
    """CPU in MHz."""
    memory_bytes: tuple[float | None, ...] = ()
    devices: Mapping[str, DeviceUsageSeries] = no_entries()
    """Usage by device id."""


class AllocUsageHistory(Value):
    """Usage of the running tasks of an allocation; one sample each `interval` ns."""

    interval: int = 0
    tasks: Mapping[str, UsageSeries] = no_entries()


class HostUsageHistory(Value):
    """Usage of a host; one sample each `interval` ns."""

    interval: int = 0
    host: UsageSeries = UsageSeries()


class AllocCheckStatus(Value):
    """The last result of a service check; the time in unix seconds."""

    id: str
    check: str = ""
    group: str = ""
    mode: str = ""
    output: str = ""
    service: str = ""
    task: str = ""
    status: str = "pending"
    status_code: int = 0
    timestamp: int = 0


class NodeMeta(Value):
    """A node's metadata: the effective values, the changes made at run time (None: hidden), and the configured ones."""

    meta: Mapping[str, str] = no_entries()
    dynamic: Mapping[str, str | None] = no_entries()
    static: Mapping[str, str] = no_entries()


class HostStats(Value):
    """Usage of a host, in the shape of the API."""

    memory: Mapping[str, int] = no_entries()
    cpu: tuple[Mapping[str, Any], ...] = ()
    disk_stats: tuple[Mapping[str, Any], ...] = ()
    device_stats: tuple[DeviceGroupStats, ...] = ()
    alloc_dir_stats: Mapping[str, Any] = no_entries()
    uptime: int = 0
    timestamp: int = 0
    cpu_ticks_consumed: float = 0.0


class TemplateQuery(Value):
    """A template's query: a `variable`, all `variables` below a prefix, a `service`, or all `services`.

    The answer comes once the data has changed past `min_index`, or after the time limit.
    """

    node_id: str
    alloc_id: str
    task: str
    kind: str
    name: str = ""
    namespace: str = "default"
    min_index: int = 0
    timeout_s: float = 300.0


class IdentityQuery(Value):
    """A node's request for the token of a task's identity."""

    node_id: str
    alloc_id: str
    task: str
    name: str = "default"


class SignedIdentity(Value):
    """A token and its expiry in unix ns (0: never)."""

    token: str
    expires_at: int = 0


class TemplateQueryAnswer(Value):
    """The data for a template query in the shape of the API; `exists` is false for a missing variable."""

    index: int
    exists: bool = True
    data: Any = None


class ShownCredential(Value):
    """A caller's credential: the hash of a secret, a signed identity, or neither."""

    secret_hash: str = ""
    identity: str = ""


class NamespaceRights(Value):
    """The capabilities granted in the namespaces that a label, possibly a glob, matches."""

    label: str
    capabilities: tuple[str, ...] = ()
    """Capabilities, sorted; empty if the label only overrides less specific ones."""


class CallerRights(Value):
    """The present rights of a caller, for an agent without a server; never a secret.

    Such an agent answers requests about its node: files, logs, commands, statistics, itself. So it needs the caller's
    capabilities in namespaces, the levels for agents and nodes, and the caller's name for its audit log. Variables,
    volumes, operators and the texts and names of policies stay at the servers.
    """

    kind: str
    """The authentication level, as in `yurt.acl.rights.AuthenticationLevel`."""
    namespaces: tuple[NamespaceRights, ...] = ()
    levels: Mapping[str, str] = no_entries()
    """The access levels for `agent` and `node`."""
    resolved_by: str = ""
    """The kind of the caller's credential, in the words of audit records; so are the next ones."""
    accessor_id: str = ""
    name: str = ""
    type: str = ""
    is_global: bool = False
    problem: str = ""
    """The reason why the caller has no rights."""
    lifetime: Duration | None = None
    """Nanoseconds until the token expires, by the server's clock; None for never. A duration, because the clocks of
    agents differ."""
