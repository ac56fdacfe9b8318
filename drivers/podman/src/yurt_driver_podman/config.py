"""The options of the podman driver for tasks and agents. Names are those of nomad-driver-podman."""

from __future__ import annotations

import msgspec
from yurt.sdk.containers.common import DEFAULT_CAPS, owner_of
from yurt.sdk.containers.options import AgentAuth, DanglingRules, Gc, Volumes, dangling_rules, image_delay_s
from yurt.sdk.driver import Capabilities, PluginContext
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import decode_config, duration_option
from yurt.sdk.value import NANOSECONDS

DRIVER = "podman"
ENGINE = "Podman"
INSTALL = (
    "apt install podman and start its socket (systemctl enable --now podman.socket, or podman system service),"
    ' or set socket_path in plugin "podman" of this client\'s configuration'
)
DEFAULT_SOCKET = "/run/podman/podman.sock"
DEFAULT_NAME = "default"
CAPABILITIES = Capabilities(
    send_signals=True,
    exec=True,
    fs_isolation="image",
    network_modes=("host", "group", "task", "none"),
    mounts=True,
    devices=True,
    finds_by_id=True,
)


class Auth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Registry credentials for an image; `tls_verify` false accepts any certificate, and registries without TLS."""

    username: str = ""
    password: str = ""
    tls_verify: bool = True


class Logging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine's log driver and its options; `nomad` is k8s-file, collected by the client."""

    driver: str = ""
    options: list[dict[str, str]] = []


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    image: str
    apparmor_profile: str = ""
    args: list[str] = []
    auth: Auth | None = None
    auth_soft_fail: bool = False
    cap_add: list[str] = []
    cap_drop: list[str] = []
    cgroupns: str = ""
    command: str = ""
    cpu_cfs_period: int = 100_000
    cpu_hard_limit: bool = False
    cpuset_cpus: str = ""
    devices: list[str] = []
    dns: list[str] = []
    dns_options: list[str] = []
    dns_search: list[str] = []
    entrypoint: list[str] = []
    extra_hosts: list[str] = []
    force_pull: bool = False
    group_add: list[str] = []
    hostname: str = ""
    image_pull_timeout: str = ""
    init: bool = False
    init_path: str = ""
    interactive: bool = False
    ipc_mode: str = ""
    labels: list[dict[str, str]] = []
    logging: Logging | None = None
    mac_address: str = ""
    memory_reservation: str = ""
    memory_swap: str = ""
    memory_swappiness: int | None = None
    network_aliases: list[str] = []
    network_mode: str = ""
    oom_score_adj: int = 0
    pid_mode: str = ""
    pids_limit: int = 0
    port_map: list[dict[str, int]] = []
    ports: list[str] = []
    privileged: bool = False
    readonly_rootfs: bool = False
    security_opt: list[str] = []
    selinux_opts: list[str] = []
    shm_size: str = ""
    socket: str = ""
    sysctl: list[dict[str, str]] = []
    tmpfs: list[str] = []
    tty: bool = False
    ulimit: list[dict[str, str]] = []
    userns: str = ""
    uts_mode: str = ""
    volumes: list[str] = []
    working_dir: str = ""


class AgentLogging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log driver of containers that name none."""

    driver: str = "nomad"
    options: dict[str, str] = {}


class AllowedModes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Namespaces of the host, or of other containers, that tasks may join."""

    pid: list[str] = []
    ipc: list[str] = []
    userns: list[str] = []
    uts: list[str] = []
    cgroup: list[str] = []


class Socket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another engine, for example a user's. Tasks select it by `socket`."""

    name: str = DEFAULT_NAME
    socket_path: str = DEFAULT_SOCKET


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "podman"` in the agent's configuration."""

    socket_path: str = ""
    socket: list[Socket] = []
    auth: AgentAuth = AgentAuth()
    extra_labels: list[str] = []
    logging: AgentLogging = AgentLogging()
    gc: Gc = Gc()
    volumes: Volumes = Volumes()
    allow_privileged: bool = False
    allow_security_opt: list[str] = []
    allow_caps: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_CAPS))
    allowed_modes: AllowedModes = AllowedModes()
    client_http_timeout: str = "60s"
    dns_servers: list[str] = []
    image_pull_timeout: str = "5m"
    pids_limit: int = 0
    recover_stopped: bool = False
    disable_log_collection: bool = False


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's durations in seconds."""

    image_delay_s: float
    pull_s: float
    client_s: float

    def limit_s(self, image_pull_timeout: str) -> float:
        """The time limit of an image pull: the task's own, or the agent's."""
        if not image_pull_timeout:
            return self.pull_s
        return duration_option(image_pull_timeout, option="image_pull_timeout") / NANOSECONDS


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's settings; `owner` marks this client's containers on a shared engine."""

    sockets: dict[str, str]
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
    return PluginConfig(
        sockets=sockets_of(options),
        options=options,
        volumes_enabled=context.dev if enabled is None else enabled,
        durations=durations_of(options),
        dangling=dangling_rules(options.gc),
        owner=owner_of(context.paths.state_dir),
        state_dir=context.paths.state_dir,
        is_dev=context.dev,
        cgroup_parent=context.cgroup_parent,
    )


def sockets_of(options: PluginOptions) -> dict[str, str]:
    """Name and path of each engine; `default` always exists."""
    if options.socket_path and options.socket:
        raise Invalid("socket_path and socket blocks exclude each other; put the path into a socket block")
    if not options.socket:
        return {DEFAULT_NAME: plain_path(options.socket_path or DEFAULT_SOCKET)}
    found = {each.name: plain_path(each.socket_path) for each in options.socket}
    if len(found) < len(options.socket):
        raise Invalid("two socket blocks have the same name; give each a name of its own")
    if DEFAULT_NAME not in found:
        raise Invalid(f'no socket block is the "{DEFAULT_NAME}" one, for tasks that choose none; leave out one name')
    return found


def plain_path(path: str) -> str:
    """The path of a socket, from a path or a URL."""
    plain = path.removeprefix("unix://").removeprefix("unix:")
    if not plain.startswith("/"):
        raise Invalid(f'socket_path = "{path}" must be the absolute path of a socket, for example {DEFAULT_SOCKET}')
    return plain


def durations_of(options: PluginOptions) -> Durations:
    """Every duration of the agent's configuration; raises Invalid that names an invalid one."""
    return Durations(
        image_delay_s=image_delay_s(options.gc),
        pull_s=duration_option(options.image_pull_timeout, option="image_pull_timeout") / NANOSECONDS,
        client_s=duration_option(options.client_http_timeout, option="client_http_timeout") / NANOSECONDS,
    )
