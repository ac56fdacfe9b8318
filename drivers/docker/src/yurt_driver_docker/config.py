"""The options of the docker driver for tasks and agents. Names and defaults are Nomad's."""

from __future__ import annotations

import os

import msgspec
from yurt.sdk.containers.address import Tls
from yurt.sdk.containers.common import DEFAULT_CAPS, owner_of
from yurt.sdk.containers.options import AgentAuth, DanglingRules, Gc, Volumes, dangling_rules, image_delay_s
from yurt.sdk.driver import Capabilities, PluginContext
from yurt.sdk.schema import decode_config, duration_option
from yurt.sdk.value import NANOSECONDS

NAME = "docker"
ENGINE = "Docker"
INSTALL = 'apt install docker.io and start dockerd, or set endpoint in plugin "docker" of this client\'s configuration'
DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
DEFAULT_RUNTIMES = ("runc", "nvidia")
CAPABILITIES = Capabilities(
    send_signals=True,
    exec=True,
    fs_isolation="image",
    network_modes=("host", "group", "task", "none"),
    must_create_network=True,
    mounts=True,
    devices=True,
    finds_by_id=True,
)


class Auth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Registry credentials for an image."""

    username: str = ""
    password: str = ""
    email: str = ""
    server_address: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host device inside the container."""

    host_path: str = ""
    container_path: str = ""
    cgroup_permissions: str = "rwm"


class BindOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The propagation of mounts between host and container."""

    propagation: str = ""


class TmpfsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size in bytes, and mode bits of the top folder."""

    size: int = 0
    mode: int = 0


class DriverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The volume driver that creates a volume."""

    name: str = ""
    options: list[dict[str, str]] = []


class VolumeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options for the creation of a volume."""

    no_copy: bool = False
    labels: list[dict[str, str]] = []
    driver_config: DriverConfig | None = None


class MountOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bind, a volume or a tmpfs."""

    type: str = "volume"
    target: str = ""
    source: str = ""
    readonly: bool = False
    bind_options: BindOptions | None = None
    tmpfs_options: TmpfsOptions | None = None
    volume_options: VolumeOptions | None = None


class Healthchecks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to disable the image's health check."""

    disable: bool = False


class TaskLogging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine's log driver and its options; `driver` is the old name of `type`."""

    type: str = ""
    driver: str = ""
    config: list[dict[str, str]] = []


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    image: str
    advertise_ipv6_address: bool = False
    args: list[str] = []
    auth: Auth | None = None
    auth_soft_fail: bool = False
    cap_add: list[str] = []
    cap_drop: list[str] = []
    cgroupns: str = ""
    command: str = ""
    container_exists_attempts: int = 0
    cpu_cfs_period: int = 100_000
    cpu_hard_limit: bool = False
    cpuset_cpus: str = ""
    devices: list[Device] = []
    dns_options: list[str] = []
    dns_search_domains: list[str] = []
    dns_servers: list[str] = []
    entrypoint: list[str] = []
    extra_hosts: list[str] = []
    force_pull: bool = False
    group_add: list[str] = []
    healthchecks: Healthchecks | None = None
    hostname: str = ""
    image_pull_timeout: str = ""
    init: bool = False
    interactive: bool = False
    ipc_mode: str = ""
    ipv4_address: str = ""
    ipv6_address: str = ""
    isolation: str = ""
    labels: list[dict[str, str]] = []
    load: str = ""
    logging: TaskLogging | None = None
    mac_address: str = ""
    memory_hard_limit: int = 0
    mount: list[MountOption] = []
    mounts: list[MountOption] = []
    network_aliases: list[str] = []
    network_mode: str = ""
    oom_score_adj: int = 0
    pid_mode: str = ""
    pids_limit: int = 0
    port_map: list[dict[str, int]] = []
    ports: list[str] = []
    privileged: bool = False
    readonly_rootfs: bool = False
    runtime: str = ""
    security_opt: list[str] = []
    shm_size: int = 0
    storage_opt: dict[str, str] = {}
    sysctl: list[dict[str, str]] = []
    tty: bool = False
    ulimit: list[dict[str, str]] = []
    userns_mode: str = ""
    uts_mode: str = ""
    volume_driver: str = ""
    volumes: list[str] = []
    work_dir: str = ""


class AgentLogging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log driver of containers that name none."""

    type: str = "json-file"
    config: dict[str, str] = {}


class AllowedModes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Namespaces of the host, or of other containers, that tasks may join."""

    pid: list[str] = []
    ipc: list[str] = []
    userns: list[str] = []
    uts: list[str] = []
    cgroup: list[str] = []


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "docker"` in the agent's configuration."""

    endpoint: str = ""
    auth: AgentAuth = AgentAuth()
    tls: Tls = Tls()
    extra_labels: list[str] = []
    logging: AgentLogging = AgentLogging()
    gc: Gc = Gc()
    volumes: Volumes = Volumes()
    allow_privileged: bool = False
    allow_security_opt: list[str] = []
    allow_caps: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_CAPS))
    nvidia_runtime: str = "nvidia"
    allow_runtimes: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_RUNTIMES))
    infra_image: str = "registry.k8s.io/pause:3.9"
    infra_image_pull_timeout: str = "5m"
    image_pull_timeout: str = "5m"
    container_exists_attempts: int = 5
    oom_score_adj: int = 0
    pull_activity_timeout: str = "2m"
    pids_limit: int = 0
    disable_log_collection: bool = False
    windows_allow_insecure_container_admin: bool = False
    allowed_modes: AllowedModes = AllowedModes()


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's durations in seconds."""

    image_delay_s: float
    pull_s: float
    pull_activity_s: float


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's settings; `owner` marks this client's containers on a shared engine."""

    endpoint: str
    options: PluginOptions
    volumes_enabled: bool
    durations: Durations
    dangling: DanglingRules
    owner: str
    state_dir: str
    is_dev: bool = False
    cgroup_parent: str = ""


def plugin_config(context: PluginContext) -> PluginConfig:
    """Read the agent's configuration; a dev agent permits host paths unless configured otherwise."""
    options = decode_config(PluginOptions, context.config)
    enabled = options.volumes.enabled
    state_dir = context.paths.state_dir
    return PluginConfig(
        endpoint=options.endpoint or os.environ.get("DOCKER_HOST", "") or DEFAULT_ENDPOINT,
        options=options,
        volumes_enabled=context.dev if enabled is None else enabled,
        durations=durations_of(options),
        dangling=dangling_rules(options.gc),
        owner=owner_of(state_dir),
        state_dir=state_dir,
        is_dev=context.dev,
        cgroup_parent=context.cgroup_parent,
    )


def durations_of(options: PluginOptions) -> Durations:
    """Every duration of the agent's configuration; raises Invalid that names an invalid one."""
    return Durations(
        image_delay_s=image_delay_s(options.gc),
        pull_s=duration_option(options.image_pull_timeout, option="image_pull_timeout") / NANOSECONDS,
        pull_activity_s=duration_option(options.pull_activity_timeout, option="pull_activity_timeout") / NANOSECONDS,
    )
