"""The operator's configuration of a client, with Nomad's defaults."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.files.users import UserRange
from yurt.client.networks.settings import NetworkSettings
from yurt.client.options import option
from yurt.client.templates.settings import TemplateSettings
from yurt.lifecycle.device_health import DeviceHealthSettings
from yurt.sdk.artifacts import ArtifactGetter
from yurt.sdk.fingerprints import NodeFingerprint
from yurt.sdk.hooks import AllocHook, TaskHook
from yurt.sdk.services import ServiceProvider
from yurt.sdk.templates import TemplateProvider
from yurt.sdk.value import Value, no_entries
from yurt.structs.node import DrainSpec, HostNetworkInfo, HostVolumeInfo

"""The version of Nomad whose behaviour this client offers; jobs constrain on `attr.nomad.version`."""

DEFAULT_ENV_DENYLIST = (
    "ATLAS_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_METADATA_URL", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "CONSUL_HTTP_AUTH", "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
    "NOMAD_CLIENT_INTRO_TOKEN", "NOMAD_HTTP_AUTH", "NOMAD_LICENSE", "NOMAD_TOKEN", "NOMAD_VAR_*", "VAULT_TOKEN",
    "VAULT_WRAPPED_TOKEN",
)  # fmt: skip
"""Variables of the agent, by name or pattern, that tasks do not see unless `env.denylist` says otherwise."""


class Reserved(Value):
    """Resources that the node reserves for itself: MHz, MiB, ports ("22,8500-8600") and cores."""

    cpu: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    ports: str = ""
    cores: tuple[int, ...] = ()


class FingerprintRetry(Value):
    """What happens when a fingerprint fails: the `client.fingerprint` block."""

    interval_s: float = 30.0
    attempts: int = 0
    """Failures after which it is not asked again; 0: it is asked until it answers."""
    ends_agent: bool = False
    """The last of these failures ends the agent."""


class AddedHooks(Value):
    """Hooks, service providers, fingerprints and artifact getters that packages add, by name."""

    task: Mapping[str, TaskHook] = no_entries()
    alloc: Mapping[str, AllocHook] = no_entries()
    service_providers: Mapping[str, ServiceProvider] = no_entries()
    fingerprints: Mapping[str, NodeFingerprint] = no_entries()
    getters: Mapping[str, ArtifactGetter] = no_entries()


class ClientConfig(Value):
    """The client block of an agent's configuration; times in seconds."""

    state_dir: str
    alloc_dir: str
    name: str = ""
    node_class: str = ""
    node_pool: str = "default"
    datacenter: str = "dc1"
    region: str = "global"
    meta: Mapping[str, str] = no_entries()
    options: Mapping[str, str] = no_entries()
    reserved: Reserved = Reserved()
    dev: bool = False
    enable_debug: bool = False
    http_addr: str = "127.0.0.1:4646"
    version: str = ""
    max_kill_timeout_s: float = 30.0
    gc_max_allocs: int = 50
    gc_interval_s: float = 60.0
    gc_disk_usage_threshold: float = 80.0
    gc_inode_usage_threshold: float = 70.0
    gc_parallel_destroys: int = 2
    min_dynamic_port: int = 20000
    max_dynamic_port: int = 32000
    cpu_total_compute: int = 0
    memory_total_mb: int = 0
    disk_total_mb: int = 0
    reservable_cores: tuple[int, ...] = ()
    """The cores that tasks with `cores` may reserve; empty: all that are not reserved for the node."""
    has_host_uuid: bool = False
    """A new node's id is made of the machine's."""
    cgroup_parent: str = ""
    """The parent of the cgroups of tasks, below the mount point; "" for the usual one."""
    has_service_discovery: bool = True
    fingerprint_retries: Mapping[str, FingerprintRetry] = no_entries()
    network_interface: str = ""
    network_speed: int = 0
    host_networks: Mapping[str, HostNetworkInfo] = no_entries()
    host_volumes: Mapping[str, HostVolumeInfo] = no_entries()
    host_volumes_dir: str = ""
    host_volume_plugin_dir: str = ""
    host_volume_register_dirs: tuple[str, ...] = ()
    env_denylist: tuple[str, ...] = DEFAULT_ENV_DENYLIST
    networks: NetworkSettings = NetworkSettings()
    artifact: ArtifactLimits = ArtifactLimits()
    template: TemplateSettings = TemplateSettings()
    template_providers: Mapping[str, TemplateProvider] = no_entries()
    added: AddedHooks = AddedHooks()
    default_ineligible: bool = False
    node_max_allocs: int = 0
    users: UserRange = UserRange()
    """The ids of dynamic users."""
    disable_remote_exec: bool = False
    shutdown_drain: DrainSpec | None = None
    """The drain of the node when the agent leaves; None: tasks are stopped."""
    device_health: DeviceHealthSettings = DeviceHealthSettings()
    gc_volumes_on_node_gc: bool = False
    """Delete the node's dynamic host volumes with the node when the servers collect it."""

    @property
    def denied_env(self) -> tuple[str, ...]:
        """Agent variables hidden from tasks, by name or pattern; `env.denylist` replaces the default list."""
        denylist = option(self.options, "env.denylist")
        return tuple(name.strip() for name in denylist.split(",")) if denylist else self.env_denylist

    def inherited_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """The part of the agent's environment that tasks may see."""
        denied = self.denied_env
        return {name: env[name] for name in env if not any(fnmatch.fnmatchcase(name, each) for each in denied)}
