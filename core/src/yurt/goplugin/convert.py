"""Converts values of the SDK to messages of the driver service, and back. Pure."""

from __future__ import annotations

from typing import Any

from yurt.goplugin.messages import DRIVERS, SHARED, Message, driver_message, message_class
from yurt.sdk.driver import (
    HEALTHY,
    UNDETECTED,
    UNHEALTHY,
    Capabilities,
    DeviceNode,
    ExitResult,
    Fingerprint,
    LogRotation,
    Mount,
    NameServers,
    PortGiven,
    TaskDirs,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

MIB = 1024 * 1024
CPU_PERIOD_US = 100_000
HEALTH = (UNDETECTED, UNHEALTHY, HEALTHY)
FS_ISOLATION = ("none", "chroot", "image", "none")
NETWORK_MODES = ("host", "group", "task", "none")
ANY_MOUNTS, NO_MOUNTS = 0, 1
STATE_RUNNING, STATE_EXITED = 1, 2
GROUP_NETWORK = 1
HANDLE_VERSION = 1
GO_ZERO_TIME_S = -62_135_596_800
"""The first moment of the year 1, which a `time.Time` holds that was never set."""
DEV_NULL = "/dev/null"
RESOLVER = "/etc/resolv.conf"


def task_config(request: TaskRequest, *, msgpack_config: bytes, outputs: tuple[str, str]) -> Message:
    """A task as the plugin's message; `outputs` are the FIFOs for stdout and stderr."""
    message = driver_message(
        "TaskConfig",
        id=request.task_id,
        name=request.task_name,
        msgpack_driver_config=msgpack_config,
        env=dict(request.env),
        resources=resources(request),
        mounts=[mount_message(mount) for mount in request.mounts if not is_resolver_file(mount, request)],
        devices=[device_message_of(device) for device in request.devices],
        user=request.user,
        alloc_dir=request.dirs.alloc_dir,
        stdout_path=outputs[0],
        stderr_path=outputs[1],
        task_group_name=request.group_name,
        job_name=request.env.get("NOMAD_JOB_NAME", request.job_id),
        job_id=request.job_id,
        alloc_id=request.alloc_id,
        namespace=request.namespace,
        node_name=request.env.get("NOMAD_NODE_NAME", ""),
        node_id=request.env.get("NOMAD_NODE_ID", ""),
        parent_job_id=request.env.get("NOMAD_JOB_PARENT_ID", ""),
    )
    if request.name_servers is not None:
        resolver = request.name_servers
        message.dns.CopyFrom(
            driver_message("DNSConfig", servers=resolver.servers, searches=resolver.searches, options=resolver.options)
        )
    if request.network_namespace:
        message.network_isolation_spec.mode = GROUP_NETWORK
        message.network_isolation_spec.path = request.network_namespace
        message.network_isolation_spec.hostsConfig.hostname = request.hostname
    return message


def is_resolver_file(mount: Mount, request: TaskRequest) -> bool:
    """Whether a mount is the resolver file of a group: the plugin gets the settings instead and writes its own file."""
    return mount.task_path == RESOLVER and request.name_servers is not None


def resources(request: TaskRequest) -> Message:
    """A task's resources, in the scheduler's units and in the kernel's."""
    task_resources = request.resources
    limit_mb = task_resources.memory_max_mb or task_resources.memory_mb
    part = task_resources.cpu_shares / task_resources.node_cpu_shares if task_resources.node_cpu_shares else 0.0
    return driver_message(
        "Resources",
        allocated_resources=driver_message(
            "AllocatedTaskResources",
            cpu=driver_message("AllocatedCpuResources", cpu_shares=task_resources.cpu_shares),
            memory=driver_message(
                "AllocatedMemoryResources",
                memory_mb=task_resources.memory_mb,
                memory_max_mb=max(task_resources.memory_max_mb, 0),
            ),
        ),
        linux_resources=driver_message(
            "LinuxResources",
            cpu_period=CPU_PERIOD_US,
            cpu_shares=task_resources.cpu_shares,
            memory_limit_bytes=max(limit_mb, 0) * MIB,
            cpuset_cpus=",".join(map(str, task_resources.reserved_cores)),
            PercentTicks=part,
        ),
        ports=[
            driver_message("PortMapping", label=port.label, value=port.host_port, to=port.to, host_ip=port.host_ip)
            for port in request.ports
        ],
    )


def mount_message(mount: Mount) -> Message:
    """A mount as a message; private propagation is sent as an empty text, as Nomad does."""
    return driver_message(
        "Mount",
        task_path=mount.task_path,
        host_path=mount.host_path,
        readonly=mount.is_read_only,
        propagation_mode="" if mount.propagation == "private" else mount.propagation,
        selinux_label=mount.selinux_label,
    )


def device_message_of(device: DeviceNode) -> Message:
    """A device node."""
    return driver_message(
        "Device",
        task_path=device.task_path or device.host_path,
        host_path=device.host_path,
        cgroup_permissions=device.permissions,
    )


def request_of(message: Message, config: Any, *, logs_dir: str, logs: LogRotation) -> TaskRequest:
    """The request for our driver from the message of a host."""
    task_dir = f"{message.alloc_dir}/{message.name}"
    task_resources = message.resources
    part = task_resources.linux_resources.PercentTicks
    dns = message.dns
    return TaskRequest(
        task_id=message.id,
        alloc_id=message.alloc_id,
        task_name=message.name,
        job_id=message.job_id or message.job_name,
        group_name=message.task_group_name,
        namespace=message.namespace,
        config=config,
        env={**message.env, **message.device_env},
        dirs=TaskDirs(
            alloc_dir=message.alloc_dir,
            shared_dir=f"{message.alloc_dir}/alloc",
            task_dir=task_dir,
            local_dir=f"{task_dir}/local",
            secrets_dir=f"{task_dir}/secrets",
            logs_dir=logs_dir,
        ),
        resources=TaskResources(
            cpu_shares=task_resources.allocated_resources.cpu.cpu_shares,
            node_cpu_shares=round(task_resources.allocated_resources.cpu.cpu_shares / part) if part > 0 else 0,
            reserved_cores=cores_of(task_resources.linux_resources.cpuset_cpus),
            memory_mb=task_resources.allocated_resources.memory.memory_mb,
            memory_max_mb=task_resources.allocated_resources.memory.memory_max_mb,
        ),
        logs=logs,
        user=message.user,
        ports=tuple(
            PortGiven(label=port.label, host_ip=port.host_ip, host_port=port.value, to=port.to)
            for port in task_resources.ports
        ),
        network_namespace=message.network_isolation_spec.path,
        hostname=message.network_isolation_spec.hostsConfig.hostname,
        name_servers=NameServers(servers=tuple(dns.servers), searches=tuple(dns.searches), options=tuple(dns.options))
        if message.HasField("dns")
        else None,
        mounts=tuple(
            Mount(
                host_path=mount.host_path,
                task_path=mount.task_path,
                is_read_only=mount.readonly,
                propagation=mount.propagation_mode or "private",
                selinux_label=mount.selinux_label,
            )
            for mount in message.mounts
        ),
        devices=tuple(
            DeviceNode(host_path=device.host_path, task_path=device.task_path, permissions=device.cgroup_permissions)
            for device in message.devices
        ),
    )


def cores_of(text: str) -> tuple[int, ...]:
    """Parse cores: `"0-2,5"` is (0, 1, 2, 5)."""
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def capabilities_of(message: Message) -> Capabilities:
    """A driver's capabilities from its plugin's message."""
    return Capabilities(
        send_signals=message.send_signals,
        exec=message.exec,
        fs_isolation=FS_ISOLATION[message.fs_isolation] if message.fs_isolation < len(FS_ISOLATION) else "none",
        network_modes=tuple(NETWORK_MODES[mode] for mode in message.network_isolation_modes if mode < 4) or ("host",),
        must_create_network=message.must_create_network,
        mounts=message.mount_configs == ANY_MOUNTS,
        devices=True,
        dynamic_users=message.dynamic_workload_users,
    )


def capabilities_message(capabilities: Capabilities) -> Message:
    """Our driver's capabilities as the message for a host."""
    return driver_message(
        "DriverCapabilities",
        send_signals=capabilities.send_signals,
        exec=capabilities.exec,
        fs_isolation=FS_ISOLATION.index(capabilities.fs_isolation),
        network_isolation_modes=[
            NETWORK_MODES.index(mode) for mode in capabilities.network_modes if mode in NETWORK_MODES
        ],
        must_create_network=capabilities.must_create_network,
        mount_configs=ANY_MOUNTS if capabilities.mounts else NO_MOUNTS,
        dynamic_workload_users=capabilities.dynamic_users,
    )


def fingerprint_of(message: Message, driver: str) -> Fingerprint:
    """A driver's health and attributes from its plugin's message."""
    health = HEALTH[message.health] if message.health < len(HEALTH) else UNHEALTHY
    description = message.err or message.health_description
    return Fingerprint(
        health=UNHEALTHY if message.err else health,
        description=description or ("Healthy" if health == HEALTHY else f"the plugin {driver} says: {health}"),
        fix="" if health == HEALTHY else f"see what the driver {driver} needs on this machine, and the agent's log",
        attributes={name: attribute_text(value) for name, value in sorted(message.attributes.items())},
    )


def fingerprint_message(found: Fingerprint) -> Message:
    """Our driver's health and attributes as the message for a host."""
    attribute = message_class(f"{SHARED}.Attribute")
    texts = {name: attribute(string_val=value) for name, value in found.attributes.items()}
    description = f"{found.description}; {found.fix}" if found.fix else found.description
    return driver_message(
        "FingerprintResponse", attributes=texts, health=HEALTH.index(found.health), health_description=description
    )


def attribute_text(message: Message) -> str:
    """An attribute as the text that node attributes hold."""
    match message.WhichOneof("value"):
        case "bool_val":
            return "true" if message.bool_val else "false"
        case "int_val":
            text = str(message.int_val)
        case "float_val":
            text = f"{message.float_val:g}"
        case _:
            text = message.string_val
    return f"{text} {message.unit}" if message.unit else text


def exit_of(message: Message, error: str, *, at: UnixNano) -> ExitResult:
    """A task's exit result from the plugin's message."""
    return ExitResult(
        exit_code=message.exit_code,
        signal=message.signal,
        oom_killed=message.oom_killed,
        error=error,
        finished_at=at,
    )


def exit_message(result: ExitResult) -> Message:
    """A task's exit result as the message for a host."""
    return driver_message("ExitResult", exit_code=result.exit_code, signal=result.signal, oom_killed=result.oom_killed)


def network_message(config: Message, address: str) -> Message | None:
    """The message with a task's own address, by which a host registers its services; None without one."""
    if not address:
        return None
    ports = {port.label: port.to if port.to > 0 else port.value for port in config.resources.ports}
    return driver_message("NetworkOverride", addr=address, port_map=ports)


def duration_fields(duration: Duration) -> dict[str, int]:
    """The fields of a duration."""
    return {"seconds": duration // NANOSECONDS, "nanos": duration % NANOSECONDS}


def duration_of(message: Message) -> Duration:
    """A duration in nanoseconds."""
    return Duration(message.seconds * NANOSECONDS + message.nanos)


def timestamp_fields(at: UnixNano) -> dict[str, int]:
    """The fields of a timestamp; 0 becomes Go's zero time, because Go does not accept an absent timestamp."""
    if at == 0:
        return {"seconds": GO_ZERO_TIME_S}
    return {"seconds": at // NANOSECONDS, "nanos": at % NANOSECONDS}


def unix_nano(message: Message) -> UnixNano:
    """A timestamp in nanoseconds; 0 for one that is absent, and for Go's zero time."""
    return UnixNano(max(message.seconds * NANOSECONDS + message.nanos, 0))


def parse_handle(data: bytes) -> Message:
    """A stored handle; raises DecodeError for damage."""
    return message_class(f"{DRIVERS}.TaskHandle").FromString(data)
