"""Derives the settings of server, client and HTTP from the agent's configuration; unset keys keep their defaults."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yurt import __version__
from yurt.agent.config import AgentConfig, seconds_of
from yurt.agent.data_dir import AgentDataDir
from yurt.agent.shown_config import shown_config
from yurt.agent.telemetry.settings import telemetry_settings
from yurt.client.artifacts.confinement import checked_extra_path
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.artifacts.trusted_hosts import checked_trusted_host
from yurt.client.config import ClientConfig, FingerprintRetry, Reserved
from yurt.client.files.users import UserRange
from yurt.client.networks.bridge import check_settings
from yurt.client.networks.settings import NetworkSettings
from yurt.client.templates.settings import TemplateSettings
from yurt.http.agent_info import AgentInfo, SearchSettings
from yurt.lifecycle.device_health import FAULTS_MAX, DeviceHealthSettings
from yurt.sdk.dynamic_users import ID_MAX
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, parse_duration
from yurt.server.config import (
    AclConfig,
    GcThresholds,
    IntroductionConfig,
    KeyProviderConfig,
    RejectionConfig,
    ServerConfig,
)
from yurt.structs.cluster import AutopilotConfiguration, PreemptionConfig, SchedulerConfiguration
from yurt.structs.node import DrainSpec, HostNetworkInfo, HostVolumeInfo

log = logging.getLogger(__name__)
CORE_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
CORE_MAX = 8191
"""Linux counts no core beyond."""
SIZE = re.compile(r"^([0-9]+(?:\.[0-9]+)?) ?([kmgt])?(i)?b?$", re.IGNORECASE)
PRIORITY_USUAL, PRIORITY_LIMIT = 100, 32_766
"""The default and the maximum of a job's greatest priority."""
CGROUP_PATH = re.compile(r"(?!\.|cgroup\.)[\w.:@-]+(/(?!\.|cgroup\.)[\w.:@-]+)*", re.ASCII)
ENFORCEMENTS = ("none", "warn", "strict")


def server_config(config: AgentConfig, data: AgentDataDir) -> ServerConfig:
    """The server's settings."""
    block = config.server
    numbers = ("job_max_count", "job_max_priority", "job_default_priority", "job_tracked_versions",
               "event_buffer_size", "max_heartbeats_per_second")  # fmt: skip
    durations = {
        "heartbeat_grace": "heartbeat_grace_s", "min_heartbeat_ttl": "min_heartbeat_ttl_s",
        "failover_heartbeat_ttl": "failover_heartbeat_ttl_s", "raft_snapshot_interval": "snapshot_interval_s",
        "root_key_rotation_threshold": "root_key_rotation_s",
    }  # fmt: skip
    gc = {
        "job_gc_interval": "interval_s", "eval_gc_threshold": "eval_s", "batch_eval_gc_threshold": "batch_eval_s",
        "job_gc_threshold": "job_s", "node_gc_threshold": "node_s", "deployment_gc_threshold": "deployment_s",
        "root_key_gc_interval": "root_key_interval_s", "root_key_gc_threshold": "root_key_s",
        "acl_token_gc_threshold": "acl_token_s",
    }  # fmt: skip
    settings: dict[str, Any] = {name: block[name] for name in numbers if block.get(name)}
    if "num_schedulers" in block:
        settings["num_schedulers"] = block["num_schedulers"]
    if block.get("enabled_schedulers"):
        from yurt.server.scheduling.scheduling import checked_schedulers

        settings["enabled_schedulers"] = checked_schedulers(tuple(map(str, block["enabled_schedulers"])))
    settings |= {ours: seconds_of(block[theirs], 0) for theirs, ours in durations.items() if theirs in block}
    settings |= _renamed(
        block, {"raft_snapshot_threshold": "snapshot_threshold", "raft_trailing_logs": "trailing_entries"}
    )
    if block.get("job_max_source_size"):
        settings["job_max_source_size"] = bytes_of(block["job_max_source_size"], 0)
    return _checked(
        ServerConfig(
            name=f"{config.name}.{config.region}",
            region=config.region,
            authoritative_region=block.get("authoritative_region", ""),
            datacenter=config.datacenter,
            dev=config.is_dev,
            rpc_addr=config.advertise_rpc,
            data_dir="" if config.is_dev else str(data.server),
            keyring=_key_providers(config.raw.get("keyring", {})),
            gc=GcThresholds(**{ours: seconds_of(block[theirs], 0) for theirs, ours in gc.items() if theirs in block}),
            oidc_issuer=issuer_of(block.get("oidc_issuer", "")),
            acl=acl_config(config.raw.get("acl", {})),
            introduction=introduction_config(block.get("client_introduction", {})),
            rejections=rejection_config(block.get("plan_rejection_tracker", {})),
            scheduler_config=scheduler_config(block.get("default_scheduler_config", {})),
            autopilot_config=autopilot_config(config.raw.get("autopilot", {})),
            **settings,
        )
    )


def _checked(made: ServerConfig) -> ServerConfig:
    """The settings; raises Invalid for priorities that no job may have."""
    if not PRIORITY_USUAL <= made.job_max_priority <= PRIORITY_LIMIT:
        raise Invalid(f"server job_max_priority must be between {PRIORITY_USUAL} and {PRIORITY_LIMIT}")
    if not 1 <= made.job_default_priority <= made.job_max_priority:
        raise Invalid(f"server job_default_priority must be between 1 and {made.job_max_priority}")
    return made


def issuer_of(text: str) -> str:
    """The base URL of the discovery document; raises Invalid for what relying parties cannot use as an issuer."""
    if not text:
        return ""
    url = urlsplit(text)
    if url.scheme not in ("https", "http") or not url.hostname or url.query or url.fragment or "@" in url.netloc:
        raise Invalid(
            f'server oidc_issuer: "{text}" must be an http or https URL without query, fragment and user, '
            'for example "https://nomad.example.com"'
        )
    return text


def _key_providers(blocks: Mapping[str, Any]) -> tuple[KeyProviderConfig, ...]:
    """The key encryption keys."""
    if not blocks:
        return ()
    from yurt.agent.blocks.keyring import keyring_configs

    return keyring_configs(blocks)


def introduction_config(block: Mapping[str, Any]) -> IntroductionConfig:
    """The settings for introducing clients; raises Invalid for an unknown enforcement level or inconsistent times."""
    usual = IntroductionConfig()
    made = IntroductionConfig(
        enforcement=block.get("enforcement") or usual.enforcement,
        default_ttl_s=seconds_of(block.get("default_identity_ttl"), usual.default_ttl_s),
        max_ttl_s=seconds_of(block.get("max_identity_ttl"), usual.max_ttl_s),
    )
    if made.enforcement not in ENFORCEMENTS:
        raise Invalid(f'server client_introduction enforcement: "{made.enforcement}" must be none, warn or strict')
    if not 0 < made.default_ttl_s <= made.max_ttl_s:
        raise Invalid("server client_introduction: default_identity_ttl must be above 0 and at most max_identity_ttl")
    return made


def acl_config(block: Mapping[str, Any]) -> AclConfig:
    """The `acl` block of a configuration that has been checked."""
    usual = AclConfig()
    times = ("token_ttl", "policy_ttl", "role_ttl", "token_min_expiration_ttl", "token_max_expiration_ttl")
    return AclConfig(
        enabled=block.get("enabled", usual.enabled),
        replication_token=block.get("replication_token", ""),
        **{f"{name}_s": seconds_of(block[name], 0) for name in times if name in block},
    )


def rejection_config(block: Mapping[str, Any]) -> RejectionConfig:
    """The number of rejected plans, and the time window, that make a node ineligible."""
    usual = RejectionConfig()
    return RejectionConfig(
        enabled=block.get("enabled", usual.enabled),
        threshold=block.get("node_threshold") or usual.threshold,
        window_s=seconds_of(block.get("node_window"), usual.window_s),
    )


def scheduler_config(block: Mapping[str, Any]) -> SchedulerConfiguration:
    """The scheduler's settings at the cluster's first start."""
    preemption = _renamed(
        block.get("preemption_config", {}),
        {
            "system_scheduler_enabled": "system_scheduler_enabled",
            "sysbatch_scheduler_enabled": "sys_batch_scheduler_enabled",
            "batch_scheduler_enabled": "batch_scheduler_enabled",
            "service_scheduler_enabled": "service_scheduler_enabled",
        },
    )
    plain = {name: value for name, value in block.items() if name != "preemption_config"}
    return SchedulerConfiguration(preemption_config=PreemptionConfig(**preemption), **plain)


def autopilot_config(block: Mapping[str, Any]) -> AutopilotConfiguration:
    """The autopilot settings at the cluster's first start."""
    same = ("cleanup_dead_servers", "max_trailing_logs", "min_quorum", "disable_upgrade_migration")
    times = ("last_contact_threshold", "server_stabilization_time")
    settings: dict[str, Any] = {name: block[name] for name in same if name in block}
    settings |= {name: Duration(parse_duration(block[name])) for name in times if name in block}
    return AutopilotConfiguration(**settings)


def client_folder(config: AgentConfig, data: AgentDataDir) -> Path:
    """The folder of the client's state; dev mode uses the temporary data directory."""
    folder = config.client.get("state_dir")
    return Path(folder).absolute() if folder and not config.is_dev else data.client


def client_config(config: AgentConfig, data: AgentDataDir) -> ClientConfig:
    """The client's settings."""
    block = config.client
    same = (
        "node_class", "node_pool", "meta", "options", "gc_max_allocs", "gc_disk_usage_threshold",
        "gc_inode_usage_threshold",
        "gc_parallel_destroys", "min_dynamic_port", "max_dynamic_port", "cpu_total_compute", "memory_total_mb",
        "disk_total_mb",
        "network_interface", "network_speed", "default_ineligible", "node_max_allocs", "disable_remote_exec",
        "gc_volumes_on_node_gc",
    )  # fmt: skip
    durations = {"max_kill_timeout": "max_kill_timeout_s", "gc_interval": "gc_interval_s"}
    settings: dict[str, Any] = {name: block[name] for name in same if name in block}
    settings |= {ours: seconds_of(block[theirs], 0) for theirs, ours in durations.items() if theirs in block}
    reserved = _renamed(
        block.get("reserved", {}), {"cpu": "cpu", "memory": "memory_mb", "disk": "disk_mb", "reserved_ports": "ports"}
    )
    if block.get("reserved", {}).get("cores"):
        reserved["cores"] = core_list(block["reserved"]["cores"], setting="client reserved.cores")
    return ClientConfig(
        state_dir=str(client_folder(config, data)),
        alloc_dir=block.get("alloc_dir") or str(data.alloc),
        name=config.name,
        datacenter=config.datacenter,
        region=config.region,
        dev=config.is_dev,
        enable_debug=exposes_debug_data(config),
        http_addr=config.advertise_http,
        version=__version__,
        reserved=Reserved(**reserved),
        has_host_uuid=not block.get("no_host_uuid", True),
        cgroup_parent=cgroup_parent(block),
        has_service_discovery=block.get("nomad_service_discovery", True),
        fingerprint_retries=fingerprint_retries(block.get("fingerprint", {})),
        host_networks={
            name: HostNetworkInfo(name=name, **body) for name, body in block.get("host_network", {}).items()
        },
        host_volumes={name: HostVolumeInfo(**body) for name, body in block.get("host_volume", {}).items()},
        host_volumes_dir=_folder(block.get("host_volumes_dir"), data.alloc.parent / "host_volumes"),
        host_volume_plugin_dir=_folder(block.get("host_volume_plugin_dir"), data.alloc.parent / "host_volume_plugins"),
        host_volume_register_dirs=register_dirs(block.get("host_volume_register_dirs", ())),
        networks=network_settings(block),
        artifact=artifact_limits(block.get("artifact", {})),
        template=template_settings(block.get("template", {})),
        shutdown_drain=shutdown_drain(config),
        users=user_range(block.get("users", {})),
        device_health=device_health(block.get("device_health", {})),
        reservable_cores=core_list(block.get("reservable_cores", ""), setting="client reservable_cores"),
        **settings,
    )


def core_list(text: str, *, setting: str) -> tuple[int, ...]:
    """Cores as the kernel lists them, "0-3,8"; raises Invalid for anything else."""
    found: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        bounds = CORE_RANGE.fullmatch(part.strip())
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds is not None else (1, 0)
        if not first <= last <= CORE_MAX:
            raise Invalid(f'{setting}: {part.strip()!r} is not a core or a range of cores; write for example "0-3,8"')
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def user_range(given: Mapping[str, Any]) -> UserRange:
    """The ids of the client's `users` block; raises Invalid for a range that is empty or has root or unusable ids."""
    made = UserRange(
        first=given.get("dynamic_user_min", UserRange().first), last=given.get("dynamic_user_max", UserRange().last)
    )
    if not 0 < made.first <= made.last <= ID_MAX:
        raise Invalid(
            f"client users: ids from dynamic_user_min ({made.first}) to dynamic_user_max ({made.last}) are not a range "
            f"within 1 to {ID_MAX}; write for example dynamic_user_min = 80000 and dynamic_user_max = 89999"
        )
    return made


def device_health(given: Mapping[str, Any]) -> DeviceHealthSettings:
    """The `device_health` block; raises Invalid for a time or count that cannot work."""
    times = {
        "probation": "probation_s", "suspect_period": "suspect_s", "self_test_timeout": "self_test_s",
        "fault_window": "fault_window_s", "trial": "trial_s", "trial_run_max": "trial_run_s",
    }  # fmt: skip
    settings: dict[str, Any] = {ours: seconds_of(given[theirs], 0) for theirs, ours in times.items() if theirs in given}
    for name, ours in times.items():
        if settings.get(ours, 0) < 0:
            raise Invalid(f'client device_health: {name} must not be negative, got "{given[name]}"')
    made = DeviceHealthSettings(max_faults=given.get("max_faults", DeviceHealthSettings().max_faults), **settings)
    if not 0 <= made.max_faults <= FAULTS_MAX:
        raise Invalid(f"client device_health: max_faults must be 0 (no limit) to {FAULTS_MAX}, got {made.max_faults}")
    if not made.fault_window_s and made.max_faults > 1:
        raise Invalid(
            f"client device_health: no {made.max_faults} faults (max_faults) come within a fault_window of 0; "
            'write for example fault_window = "720h", or max_faults = 0 to take no device out for good'
        )
    if made.self_test_s <= 0:
        raise Invalid('client device_health: self_test_timeout must be above 0, for example "2m"')
    return made


def shutdown_drain(config: AgentConfig) -> DrainSpec | None:
    """The drain of a `drain_on_shutdown` block."""
    block = config.client.get("drain_on_shutdown")
    if block is None:
        return None
    if not (config.leave_on_interrupt or config.leave_on_terminate):
        log.warning("client.drain_on_shutdown has no effect: set leave_on_interrupt or leave_on_terminate")
    deadline = -1 if block.get("force") else parse_duration(block.get("deadline", "1h"))
    return DrainSpec(deadline=Duration(deadline), ignore_system_jobs=bool(block.get("ignore_system_jobs")))


def register_dirs(folders: Sequence[str]) -> tuple[str, ...]:
    """The folders beneath which host volumes may be registered; raises Invalid for one without its full path."""
    strange = next((folder for folder in folders if not folder.startswith("/") or ".." in folder.split("/")), None)
    if strange is not None:
        raise Invalid(f'client host_volume_register_dirs: "{strange}" must be the full path of a folder')
    return tuple(folders)


def cgroup_parent(block: Mapping[str, Any]) -> str:
    """The parent of the cgroups of tasks, below the mount point; "" for the usual one; raises Invalid for no path."""
    parent = str(block.get("cgroup_parent", "")).strip("/")
    if parent and CGROUP_PATH.fullmatch(parent) is None:
        raise Invalid(
            f'client cgroup_parent: "{parent}" must be the path of a cgroup below the mount point, for example '
            '"nomad.slice"'
        )
    return parent


def fingerprint_retries(blocks: Mapping[str, Any]) -> dict[str, FingerprintRetry]:
    """The `fingerprint` blocks by the name of the fingerprint; that of a cloud is `platform.aws` for `env_aws`."""
    usual = FingerprintRetry()
    return {
        name.replace("env_", "platform.", 1) if name.startswith("env_") else name: FingerprintRetry(
            interval_s=seconds_of(body.get("retry_interval"), usual.interval_s),
            attempts=body.get("retry_attempts", usual.attempts),
            ends_agent=body.get("exit_on_failure", usual.ends_agent),
        )
        for name, body in blocks.items()
    }


def _folder(path: str | None, usual: Path) -> str:
    return str(Path(path or usual).absolute())


def network_settings(block: Mapping[str, Any]) -> NetworkSettings:
    """The keys of the client block on group networks; raises Invalid for unusable values."""
    same = ("cni_config_dir", "bridge_network_name", "bridge_network_subnet", "bridge_network_subnet_ipv6",
            "bridge_network_hairpin_mode")  # fmt: skip
    settings: dict[str, Any] = {name.replace("_network", ""): block[name] for name in same if block.get(name)}
    if block.get("cni_path"):
        settings["cni_paths"] = tuple(filter(None, block["cni_path"].split(":")))
    family = block.get("preferred_address_family", "")
    if family not in ("", "ipv4", "ipv6"):
        raise Invalid(f'client preferred_address_family: "{family}" must be "ipv4" or "ipv6"')
    is_wide = block.get("bind_wildcard_default_host_network", True) and not block.get("host_network")
    made = NetworkSettings(binds_wildcard=is_wide, preferred_family=family, **settings)
    check_settings(made)
    return made


def template_settings(block: Mapping[str, Any]) -> TemplateSettings:
    """The client's `template` block; raises Invalid when the least wait is longer than the longest."""
    usual = TemplateSettings()
    wait, bounds, retry = block.get("wait", {}), block.get("wait_bounds", {}), block.get("nomad_retry", {})
    denied = block.get("function_denylist", block.get("function_blacklist"))
    made = TemplateSettings(
        denied_functions=usual.denied_functions if denied is None else tuple(denied),
        is_sandboxed=not block.get("disable_file_sandbox", False),
        wait_min_s=seconds_of(wait.get("min"), usual.wait_min_s),
        wait_max_s=seconds_of(wait.get("max"), usual.wait_max_s),
        bound_min_s=seconds_of(bounds.get("min"), usual.bound_min_s),
        bound_max_s=seconds_of(bounds.get("max"), usual.bound_max_s),
        query_wait_s=seconds_of(block.get("block_query_wait"), usual.query_wait_s),
        retry_first_s=seconds_of(retry.get("backoff"), usual.retry_first_s),
        retry_max_s=seconds_of(retry.get("max_backoff"), usual.retry_max_s),
        retry_attempts=retry.get("attempts", usual.retry_attempts),
    )
    for name, least, most in (
        ("wait", made.wait_min_s, made.wait_max_s),
        ("wait_bounds", made.bound_min_s, made.bound_max_s),
    ):
        if least > most:
            raise Invalid(f"client template {name}: min ({least:g} s) is longer than max ({most:g} s)")
    return made


def artifact_limits(block: Mapping[str, Any]) -> ArtifactLimits:
    """The limits of the client's `artifact` block."""
    limits = ArtifactLimits()
    names = str(block.get("set_environment_variables", "")).split(",")
    return ArtifactLimits(
        http_read_timeout_s=seconds_of(block.get("http_read_timeout"), limits.http_read_timeout_s),
        http_max_bytes=bytes_of(block.get("http_max_size", ""), limits.http_max_bytes),
        git_timeout_s=seconds_of(block.get("git_timeout"), limits.git_timeout_s),
        hg_timeout_s=seconds_of(block.get("hg_timeout"), limits.hg_timeout_s),
        gcs_timeout_s=seconds_of(block.get("gcs_timeout"), limits.gcs_timeout_s),
        s3_timeout_s=seconds_of(block.get("s3_timeout"), limits.s3_timeout_s),
        file_count_max=block.get("decompression_file_count_limit", limits.file_count_max),
        unpacked_bytes_max=bytes_of(block.get("decompression_size_limit", ""), limits.unpacked_bytes_max),
        is_inspected=not block.get("disable_artifact_inspection", False),
        is_confined=not block.get("disable_filesystem_isolation", False),
        extra_paths=tuple(checked_extra_path(str(path)) for path in block.get("filesystem_isolation_extra_paths", ())),
        env_names=tuple(name.strip() for name in names if name.strip()),
        s3_trusted_hosts=tuple(checked_trusted_host(str(host)) for host in block.get("s3_trusted_hosts", ())),
    )


def bytes_of(text: str, default: int) -> int:
    """A size such as 100GB (1000s), 10MiB (1024s) or 5000; raises Invalid for anything else."""
    if not text:
        return default
    found = SIZE.match(text.strip())
    if found is None:
        raise Invalid(f"{text!r} is not a size; write a number and a unit, such as 500MB, 100GB or 10GiB")
    number, unit, is_binary = found.groups()
    base: int = 1024 if is_binary else 1000
    return round(float(number) * float(base ** " kmgt".index((unit or " ").lower())))


def agent_info(config: AgentConfig, plugins: tuple[Mapping[str, Any], ...]) -> AgentInfo:
    """The facts about the agent that the HTTP API shows."""
    host = config.advertise_rpc.rsplit(":", 1)[0]
    return AgentInfo(
        version=__version__,
        name=config.name,
        region=config.region,
        datacenter=config.datacenter,
        http_addr=config.advertise_http,
        rpc_addr=config.advertise_rpc,
        serf_addr=f"{host}:{config.serf_port}",
        dev=config.is_dev,
        enable_debug=exposes_debug_data(config),
        acl_enabled=config.has_acl,
        config=shown_config(config),
        telemetry=telemetry_settings(config),
        search=search_settings(config.raw.get("server", {}).get("search", {})),
        ui_enabled=bool(config.raw.get("ui", {}).get("enabled", True)),
        response_headers=config.response_headers,
        host_names=(config.rpc_address, config.serf_address, *config.http_addresses, *_host_names()),
        allowed_hosts=config.allowed_hosts,
        plugins=plugins,
    )


def search_settings(block: Mapping[str, Any]) -> SearchSettings:
    """The bounds of a fuzzy search."""
    default = SearchSettings()
    results_max = int(block.get("limit_results", default.matches_max))
    return SearchSettings(
        is_enabled=bool(block.get("fuzzy_enabled", default.is_enabled)),
        text_min=int(block.get("min_term_length", default.text_min)),
        matches_max=min(results_max, int(block.get("limit_query", results_max))),
    )


def exposes_debug_data(config: AgentConfig) -> bool:
    """Whether `/v1/agent/host` and `/v1/agent/pprof` answer.

    With access control policies decide who may ask (agent:read, agent:write), else the operator with `enable_debug`.
    """
    return bool(config.raw.get("enable_debug")) or bool(config.raw.get("acl", {}).get("enabled"))


def _host_names() -> tuple[str, ...]:
    """The host name of this machine, and its first label."""
    name = socket.gethostname()
    return (name, name.partition(".")[0])


def _renamed(block: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: block[theirs] for theirs, ours in names.items() if theirs in block}
