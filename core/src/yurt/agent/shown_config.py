"""The agent's configuration as `/v1/agent/self` shows it: Nomad's field names and types, secrets blanked.

Nomad writes the fields of its configuration by their Go names. Most follow from the key in a file (`gc_interval` is
`GCInterval`), some do not. Blocks with a label are lists of objects with a `Name`. Where Nomad keeps the parsed
duration it writes nanoseconds, where it keeps the text it writes the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yurt import NOMAD_VERSION, __version__
from yurt.agent.config import AgentConfig
from yurt.api.redaction import BLANK, redacted, redacted_plugin
from yurt.sdk.value import parse_duration

SECRETS: Final = frozenset({
    "token", "intro_token", "encrypt", "replication_token", "auth", "license_path", "circonus_api_token",
})  # fmt: skip
"""Keys of the agent's own that are never shown."""
FREE_FORM: Final = frozenset({"meta", "options", "http_api_response_headers", "config", "chroot_env"})
"""Maps whose keys are the operator's."""
LABELLED: Final = {
    "plugin": "Plugins", "host_volume": "HostVolumes", "host_network": "HostNetworks", "fingerprint": "Fingerprinters",
    "sink": "Sinks", "filter": "Filters", "import": "Imports", "keyring": "KEKProviders",
}  # fmt: skip
"""Blocks with a label, and the lists that show them."""
ACRONYMS: Final = {
    "acl": "ACL", "api": "API", "ca": "CA", "cidr": "CIDR", "cni": "CNI", "csi": "CSI", "gc": "GC", "gcs": "GCS",
    "http": "HTTP", "https": "HTTPS", "id": "ID", "ipv6": "IPv6", "mb": "MB", "oidc": "OIDC", "otlp": "OTLP",
    "rpc": "RPC", "s3": "S3", "tls": "TLS", "ttl": "TTL", "ui": "UI", "url": "URL", "uuid": "UUID", "wal": "WAL",
}  # fmt: skip
NAMES: Final = {
    "tls": "TLSConfig", "tls.http": "EnableHTTP", "tls.rpc": "EnableRPC",
    "http_api_response_headers": "HTTPAPIResponseHeaders",
    "leave_on_interrupt": "LeaveOnInt", "leave_on_terminate": "LeaveOnTerm",
    "client.reserved.cpu": "CPU", "client.reserved.memory": "MemoryMB", "client.reserved.disk": "DiskMB",
    "client.cpu_total_compute": "CpuCompute", "client.memory_total_mb": "MemoryMB",
    "client.reservable_cores": "ReserveableCores", "client.template": "TemplateConfig",
    "client.template.block_query_wait": "BlockQueryWaitTime", "client.template.disable_file_sandbox": "DisableSandbox",
    "client.server_join.retry_max": "RetryMaxAttempts", "server.server_join.retry_max": "RetryMaxAttempts",
    "server.retry_max": "RetryMaxAttempts", "server.deploy_query_rate_limit": "DeploymentQueryRateLimit",
    "server.raft_boltdb": "RaftBoltConfig", "server.raft_logstore": "RaftLogStoreConfig",
    "telemetry.statsite_address": "StatsiteAddr", "telemetry.statsd_address": "StatsdAddr",
    "telemetry.datadog_address": "DataDogAddr", "telemetry.datadog_tags": "DataDogTags",
    "telemetry.circonus_submission_url": "CirconusCheckSubmissionURL",
    "ui.consul.ui_url": "BaseUIURL", "ui.vault.ui_url": "BaseUIURL",
}  # fmt: skip
"""Go names that do not follow from the key, by the path of the key."""
NANOSECONDS: Final = frozenset({
    "acl.token_ttl", "acl.policy_ttl", "acl.role_ttl", "acl.token_min_expiration_ttl", "acl.token_max_expiration_ttl",
    "autopilot.last_contact_threshold", "autopilot.server_stabilization_time", "client.gc_interval",
    "client.server_join.retry_interval", "client.template.block_query_wait", "server.server_join.retry_interval",
    "server.retry_interval", "server.heartbeat_grace", "server.min_heartbeat_ttl", "server.failover_heartbeat_ttl",
    "server.plan_rejection_tracker.node_window", "server.client_introduction.default_identity_ttl",
    "server.client_introduction.max_identity_ttl",
})  # fmt: skip
"""Durations that are written as numbers; the others are written as texts."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "plugin_dir": "", "bind_addr": "0.0.0.0", "enable_debug": False,
    "log_json": False, "log_file": "", "log_include_location": False, "log_rotate_duration": "24h",
    "log_rotate_bytes": 0, "log_rotate_max_files": 0, "enable_syslog": False, "syslog_facility": "LOCAL0",
    "leave_on_interrupt": False, "leave_on_terminate": False,
    "disable_update_check": False, "disable_anonymous_signature": False,
    "acl": {
        "enabled": False, "token_ttl": "30s", "policy_ttl": "30s", "role_ttl": "30s", "replication_token": "",
        "token_min_expiration_ttl": "1m", "token_max_expiration_ttl": "24h",
    },
    "client": {
        "state_dir": "", "alloc_dir": "", "servers": [], "node_class": "", "node_pool": "default", "options": {},
        "meta": {}, "chroot_env": {}, "network_interface": "", "network_speed": 0, "max_kill_timeout": "30s",
        "client_min_port": 14000, "client_max_port": 14512, "min_dynamic_port": 20000, "max_dynamic_port": 32000,
        "cpu_total_compute": 0, "memory_total_mb": 0, "reservable_cores": "", "no_host_uuid": True,
        "gc_interval": "1m", "gc_parallel_destroys": 2, "gc_disk_usage_threshold": 80,
        "gc_inode_usage_threshold": 70, "gc_max_allocs": 50, "disable_remote_exec": False,
        "cni_path": "/opt/cni/bin", "cni_config_dir": "/opt/cni/config", "bridge_network_name": "nomad",
        "bridge_network_subnet": "172.26.64.0/20", "bind_wildcard_default_host_network": True, "cgroup_parent": "",
        "host_volume": {}, "host_network": {}, "nomad_service_discovery": True,
        "reserved": {"cpu": 0, "memory": 0, "disk": 0, "reserved_ports": "", "cores": ""},
        "artifact": {
            "http_read_timeout": "30m", "http_max_size": "100GB", "gcs_timeout": "30m", "git_timeout": "30m",
            "hg_timeout": "30m", "s3_timeout": "30m",
        },
        "server_join": {"start_join": [], "retry_join": [], "retry_max": 0, "retry_interval": "30s"},
    },
    "server": {
        "authoritative_region": "", "bootstrap_expect": 0, "heartbeat_grace": "10s", "min_heartbeat_ttl": "10s",
        "max_heartbeats_per_second": 50, "failover_heartbeat_ttl": "300s", "job_default_priority": 50,
        "job_max_priority": 100, "job_max_count": 50000, "event_buffer_size": 100, "enable_event_broker": True,
        "rejoin_after_leave": False, "retry_join": [], "start_join": [], "retry_max": 0, "retry_interval": "30s",
        "encrypt": "", "data_dir": "", "raft_protocol": 3, "non_voting_server": False, "redundancy_zone": "",
        "upgrade_version": "", "node_gc_threshold": "24h", "job_gc_interval": "5m", "job_gc_threshold": "4h",
        "eval_gc_threshold": "1h", "batch_eval_gc_threshold": "24h", "deployment_gc_threshold": "1h",
        "acl_token_gc_threshold": "1h", "root_key_gc_interval": "10m", "root_key_gc_threshold": "1h",
        "root_key_rotation_threshold": "720h",
        "plan_rejection_tracker": {"enabled": False, "node_threshold": 100, "node_window": "5m"},
        "search": {"fuzzy_enabled": True, "limit_query": 20, "limit_results": 100, "min_term_length": 2},
        "server_join": {"start_join": [], "retry_join": [], "retry_max": 0, "retry_interval": "30s"},
    },
    "telemetry": {
        "collection_interval": "1s", "disable_hostname": False, "prometheus_metrics": False,
        "publish_allocation_metrics": False, "publish_node_metrics": False, "statsd_address": "",
        "statsite_address": "", "datadog_address": "", "datadog_tags": [], "use_node_name": False,
        "disable_dispatched_job_summary_metrics": False, "prefix_filter": [], "filter_default": True,
    },
    "tls": {
        "http": False, "rpc": False, "ca_file": "", "cert_file": "", "key_file": "", "verify_server_hostname": False,
        "verify_https_client": False, "rpc_upgrade_mode": False, "tls_cipher_suites": "", "tls_min_version": "tls12",
    },
    "ui": {"enabled": True, "consul": {"ui_url": ""}, "vault": {"ui_url": ""}},
    "limits": {
        "https_handshake_timeout": "5s", "http_max_conns_per_client": 100, "rpc_handshake_timeout": "5s",
        "rpc_max_conns_per_client": 100,
    },
    "autopilot": {
        "cleanup_dead_servers": True, "last_contact_threshold": "200ms", "max_trailing_logs": 250, "min_quorum": 0,
        "server_stabilization_time": "10s",
    },
    "audit": {"enabled": False, "sink": {}, "filter": {}},
    "plugin": {},
    "http_api_response_headers": {},
    "consul": {},
    "vault": {"enabled": False},
}  # fmt: skip
"""Shown values of keys that the files omit; clients of Nomad's API look many of them up."""


def shown_config(config: AgentConfig) -> dict[str, Any]:
    """The configuration under Nomad's names, secrets blanked."""
    shown = _shown(_filled(config.raw, DEFAULTS), "")
    host = config.advertise_rpc.rsplit(":", 1)[0]
    shown |= {
        "Region": config.region, "Datacenter": config.datacenter, "NodeName": config.name, "DataDir": config.data_dir,
        "LogLevel": config.log_level, "BindAddr": config.raw.get("bind_addr", "0.0.0.0"), "DevMode": config.is_dev,
        "Ports": {"HTTP": config.http_port, "RPC": config.rpc_port, "Serf": config.serf_port},
        "Addresses": {
            "HTTP": " ".join(config.http_addresses), "RPC": config.rpc_address, "Serf": config.serf_address,
        },
        "AdvertiseAddrs": {
            "HTTP": config.advertise_http, "RPC": config.advertise_rpc, "Serf": f"{host}:{config.serf_port}",
        },
        "Version": {"Version": NOMAD_VERSION, "VersionPrerelease": "", "VersionMetadata": "", "Revision": ""},
        "YurtVersion": __version__,
        "Files": list(config.files),
    }  # fmt: skip
    shown["Client"] = {**shown.get("Client", {}), "Enabled": config.is_client}
    shown["Server"] = {**shown.get("Server", {}), "Enabled": config.is_server}
    return shown


def _filled(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with defaults for missing ones, in each block that is given."""
    filled = dict(values)
    for name, default in defaults.items():
        value = filled.get(name)
        if value is None:
            filled[name] = default
        elif isinstance(value, Mapping) and isinstance(default, Mapping):
            filled[name] = _filled(value, default)
    return filled


def _shown(data: Mapping[str, Any], above: str) -> dict[str, Any]:
    """A block's keys in Go's spelling, without passwords in addresses. In maps with free names, secrets are recognized
    by name too."""
    shown: dict[str, Any] = {}
    for name, setting in data.items():
        path = f"{above}{name}"
        value = BLANK if name in SECRETS and setting else setting
        if name in LABELLED and isinstance(value, Mapping):
            shown[LABELLED[name]] = [_labelled(name, label, body) for label, body in value.items()] or None
        elif not isinstance(value, Mapping):
            shown[_go_name(path)] = parse_duration(value) if path in NANOSECONDS else redacted(value)
        elif name in FREE_FORM:
            shown[_go_name(path)] = redacted(value)
        else:
            shown[_go_name(path)] = _shown(value, f"{path}.")
    return shown


def _labelled(name: str, label: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A block with its label as `Name`. What a plugin's block holds has the operator's names."""
    if name != "plugin":
        return {"Name": label, **_shown(body, f"{name}.")}
    clean = redacted_plugin(body)
    return {"Name": label, "Args": clean.get("args"), "Config": clean.get("config")}


def _go_name(path: str) -> str:
    """The Go name of the key at a path: `client.gc_interval` is `GCInterval`."""
    name = path.rpartition(".")[2]
    return NAMES.get(path) or "".join(ACRONYMS.get(word, word.capitalize()) for word in name.split("_"))
