"""Every key of the agent's configuration: its type, and what Yurt does with it.

A key is written `type`, `type -` or `type !`: used; known and harmless, so accepted with a warning that tells why it
has no effect (`blocks/without_effect.py`); not built yet, so that setting it stops the start. What follows `!` are the
values that may be given all the same, because they ask for what happens anyway (an empty text, false, 0 and an empty
list always may). Nothing that protects a cluster is ever ignored in silence. `int 1..9` is a used number with its
minimum and, unless it is left out, its maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from yurt.sdk.value import parse_duration

USED, ACCEPTED, ABSENT = "used", "accepted", "absent"


class Key(msgspec.Struct, frozen=True):
    """A value: its type, whether it has an effect, the values of an absent one that may be given, and the bounds."""

    type: str
    support: str = USED
    allowed: tuple[str, ...] = ()
    minimum: int = 0
    """Of a number, or of a duration in nanoseconds."""
    maximum: int | None = None


class ConfigBlock(msgspec.Struct, frozen=True):
    """A block of keys and blocks; `is_labelled` means `name "label" { }`, any number of them."""

    entries: Mapping[str, Entry]
    is_labelled: bool = False
    named_by: str = ""
    """The key that distinguishes blocks of one label: they are stored as `label.name`."""


Entry: TypeAlias = "Key | ConfigBlock"


def key(text: str) -> Key:
    """`string`, `string -`, `string !a,b`, `int 1..9` or `duration 100ms..` as a Key."""
    type_, _, mark = text.partition(" ")
    minimum, dots, maximum = mark.partition("..")
    if dots and type_ == "duration":
        return Key(type_, minimum=parse_duration(minimum))
    if dots:
        return Key(type_, minimum=int(minimum), maximum=int(maximum) if maximum else None)
    if mark.startswith("!"):
        return Key(type_, ABSENT, tuple(mark[1:].split(",")) if mark[1:] else ())
    return Key(type_, ACCEPTED if mark == "-" else USED)


def block(labelled: bool = False, /, **entries: str | ConfigBlock) -> ConfigBlock:
    """A block; texts are keys."""
    return ConfigBlock(
        {name: key(entry) if isinstance(entry, str) else entry for name, entry in entries.items()}, labelled
    )


def absent(*names: str, type: str = "any") -> dict[str, str | ConfigBlock]:
    """Keys of one type that are not built yet."""
    return dict.fromkeys(names, f"{type} !")


def accepted(*names: str, type: str = "any") -> dict[str, str | ConfigBlock]:
    """Keys of one type without effect."""
    return dict.fromkeys(names, f"{type} -")


IDENTITY = block(**absent("aud", "env", "file", "filepath", "ttl", "extra_claims"))
JOIN = block(start_join="list", retry_join="list", retry_max="int", retry_interval="duration 100ms..")

CLIENT = block(
    enabled="bool", state_dir="string", alloc_dir="string",
    alloc_mounts_dir="string -", host_volumes_dir="string", host_volume_plugin_dir="string",
    host_volume_register_dirs="list",
    common_plugin_dir="string -",
    servers="list", intro_token="string", node_class="string", node_pool="string", options="map", meta="map",
    chroot_env="map",
    network_interface="string", preferred_address_family="string", network_speed="int",
    cpu_disable_dmidecode="bool -",
    cpu_total_compute="int", memory_total_mb="int", disk_total_mb="int", disk_free_mb="int !",
    reservable_cores="string",
    max_kill_timeout="duration", client_max_port="int", client_min_port="int", max_dynamic_port="int",
    min_dynamic_port="int",
    reserved=block(cpu="int", memory="int", disk="int", reserved_ports="string", cores="string"),
    gc_interval="duration", gc_parallel_destroys="int", gc_disk_usage_threshold="float",
    gc_inode_usage_threshold="float",
    gc_max_allocs="int", gc_volumes_on_node_gc="bool", no_host_uuid="bool", disable_remote_exec="bool",
    template=block(
        function_denylist="list", function_blacklist="list", disable_file_sandbox="bool", block_query_wait="duration",
        wait=block(min="duration", max="duration"), wait_bounds=block(min="duration", max="duration"),
        nomad_retry=block(attempts="int", backoff="duration", max_backoff="duration"),
        max_stale="duration -", vault_default_lease_duration="duration -", use_client_consul_token="bool -",
        **accepted("consul_retry", "vault_retry"),
    ),
    server_join=JOIN,
    host_volume=block(True, path="string", read_only="bool"),
    cni_path="string", cni_config_dir="string", bridge_network_name="string", bridge_network_subnet="string",
    bridge_network_subnet_ipv6="string", bridge_network_hairpin_mode="bool",
    host_network=block(True, cidr="string", interface="string", reserved_ports="string"),
    bind_wildcard_default_host_network="bool", cgroup_parent="string", nomad_service_discovery="bool",
    artifact=block(
        http_read_timeout="duration", http_max_size="string", git_timeout="duration",
        decompression_file_count_limit="int", decompression_size_limit="string", disable_artifact_inspection="bool",
        set_environment_variables="string", disable_filesystem_isolation="bool",
        filesystem_isolation_extra_paths="list",
        gcs_timeout="duration", hg_timeout="duration", s3_timeout="duration", s3_trusted_hosts="list",
    ),
    drain_on_shutdown=block(deadline="duration", ignore_system_jobs="bool", force="bool"),
    users=block(dynamic_user_min="int", dynamic_user_max="int"),
    device_health=block(
        probation="duration", suspect_period="duration", self_test_timeout="duration", max_faults="int",
        fault_window="duration", trial="duration", trial_run_max="duration",
    ),
    node_max_allocs="int", log_file="string !", default_ineligible="bool",
    fingerprint=block(True, retry_interval="duration 100ms..", retry_attempts="int", exit_on_failure="bool"),
)  # fmt: skip

SERVER = block(
    enabled="bool", authoritative_region="string", bootstrap_expect="int", data_dir="string !",
    client_introduction=block(
        enforcement="string", default_identity_ttl="duration", max_identity_ttl="duration"
    ),
    protocol_version="int -", raft_protocol="int -", raft_multiplier="int", num_schedulers="int",
    enabled_schedulers="list",
    node_gc_threshold="duration", job_gc_interval="duration", job_gc_threshold="duration", eval_gc_threshold="duration",
    batch_eval_gc_threshold="duration", deployment_gc_threshold="duration", csi_volume_claim_gc_interval="duration -",
    csi_volume_claim_gc_threshold="duration -", csi_plugin_gc_threshold="duration -",
    acl_token_gc_threshold="duration",
    root_key_gc_interval="duration", root_key_gc_threshold="duration", root_key_rotation_threshold="duration",
    heartbeat_grace="duration", min_heartbeat_ttl="duration", max_heartbeats_per_second="float",
    failover_heartbeat_ttl="duration", start_join="list", retry_join="list", retry_max="int",
    retry_interval="duration 100ms..",
    rejoin_after_leave="bool", non_voting_server="bool !", redundancy_zone="string !", upgrade_version="string !",
    encrypt="string !", server_join=JOIN,
    default_scheduler_config=block(
        scheduler_algorithm="string", memory_oversubscription_enabled="bool", reject_job_registration="bool",
        pause_eval_broker="bool", node_limit_for_feasibility_checks="int -",
        preemption_config=block(
            system_scheduler_enabled="bool", sysbatch_scheduler_enabled="bool", batch_scheduler_enabled="bool",
            service_scheduler_enabled="bool",
        ),
    ),
    plan_rejection_tracker=block(enabled="bool", node_threshold="int", node_window="duration"),
    plan_apply_pipeline="int -", enable_event_broker="bool !true", event_buffer_size="int", license_path="string !",
    license_env="string !", deploy_query_rate_limit="float -",
    search=block(fuzzy_enabled="bool", limit_query="int 1..", limit_results="int 1..1000", min_term_length="int 1.."),
    raft_logstore=block(
        backend="string", boltdb=block(no_freelist_sync="bool -"), wal=block(segment_size_mb="int -"),
        disable_log_cache="bool -", verification=block(enabled="bool -", interval="duration -"),
    ),
    raft_boltdb=block(no_freelist_sync="bool -"), raft_snapshot_threshold="int", raft_snapshot_interval="duration",
    raft_trailing_logs="int", job_default_priority="int", job_max_priority="int", job_max_count="int",
    job_max_source_size="string", job_tracked_versions="int", oidc_issuer="string", start_timeout="duration",
    log_file="string !", non_production="bool -",
)  # fmt: skip

TELEMETRY = block(
    **accepted("in_memory_collection_interval", "in_memory_retention_period", type="duration"),
    collection_interval="duration",
    **dict.fromkeys(
        (
            "disable_hostname", "use_node_name", "publish_allocation_metrics", "publish_node_metrics",
            "include_alloc_metadata_in_metrics", "filter_default", "disable_dispatched_job_summary_metrics",
            "disable_quota_utilization_metrics", "disable_allocation_hook_metrics", "prometheus_metrics",
        ),
        "bool",
    ),
    disable_rpc_rate_metrics_labels="bool -",
    allowed_metadata_keys_in_metrics="list", prefix_filter="list", datadog_tags="list",
    statsite_address="string", statsd_address="string", datadog_address="string",
    otlp=block(endpoint="string", ca_file="string", sample_ratio="float"),
    **absent("circonus_api_token", "circonus_submission_url", type="string"),
    **accepted(
        "circonus_api_app", "circonus_api_url", "circonus_submission_interval", "circonus_check_id",
        "circonus_check_force_metric_activation", "circonus_check_instance_id", "circonus_check_search_tag",
        "circonus_check_tags", "circonus_check_display_name", "circonus_broker_id", "circonus_broker_select_tag",
    ),
)  # fmt: skip

CONSUL = block(
    **absent(
        "address", "grpc_address", "token", "auth", "ssl", "share_ssl", "ca_file", "grpc_ca_file", "cert_file",
        "key_file",
        "auto_advertise", "checks_use_advertise", "server_auto_join", "client_auto_join", "namespace",
        "service_auth_method",
        "task_auth_method",
    ),
    **accepted(
        "name", "verify_ssl", "timeout", "tags", "server_service_name", "server_http_check_name",
        "server_serf_check_name",
        "server_rpc_check_name", "server_failures_before_critical", "server_failures_before_warning",
        "client_service_name",
        "client_http_check_name", "client_failures_before_critical", "client_failures_before_warning",
    ),
    service_identity=IDENTITY, task_identity=IDENTITY,
)  # fmt: skip

VAULT = block(
    enabled="bool !", default_identity=IDENTITY,
    **accepted(
        "name", "address", "namespace", "create_from_role", "jwt_auth_backend_path", "ca_file", "ca_path", "cert_file",
        "key_file", "tls_skip_verify", "tls_server_name",
    ),
)  # fmt: skip

TLS = block(
    http="bool", rpc="bool", verify_server_hostname="bool -", rpc_upgrade_mode="bool", verify_https_client="bool",
    ca_file="string", cert_file="string", key_file="string", tls_cipher_suites="string !", tls_min_version="string",
    tls_prefer_server_cipher_suites="bool -",
)  # fmt: skip

AUDIT = block(
    enabled="bool",
    sink=block(
        True, type="string", format="string", delivery_guarantee="string", path="string", mode="string",
        rotate_bytes="int", rotate_duration="duration", rotate_max_files="int",
    ),
    filter=block(True, type="string", endpoints="list", stages="list", operations="list"),
)  # fmt: skip

ROOT = block(
    region="string", datacenter="string", name="string", data_dir="string", plugin_dir="string", log_level="string",
    log_json="bool", log_file="string", log_include_location="bool", log_rotate_duration="duration",
    log_rotate_bytes="int", log_rotate_max_files="int", bind_addr="string", enable_debug="bool",
    ports=block(http="int", rpc="int", serf="int", etcd="int"),
    addresses=block(http="string", rpc="string", serf="string"),
    advertise=block(http="string", rpc="string", serf="string"),
    client=CLIENT, server=SERVER, telemetry=TELEMETRY, consul=CONSUL, vault=VAULT, tls=TLS, audit=AUDIT,
    rpc=block(
        dial_timeout="duration 100ms..", accept_backlog="int -",
        **accepted(
            "keep_alive_interval", "connection_write_timeout", "stream_open_timeout", "stream_close_timeout",
            type="duration",
        ),
    ),
    acl=block(
        enabled="bool", token_ttl="duration", policy_ttl="duration", role_ttl="duration", replication_token="string",
        token_min_expiration_ttl="duration", token_max_expiration_ttl="duration", allow_rpc_without_tls="bool",
    ),
    leave_on_interrupt="bool", leave_on_terminate="bool", enable_syslog="bool", syslog_facility="string",
    disable_update_check="bool -", disable_anonymous_signature="bool -",
    ui=block(
        enabled="bool", show_cli_hints="bool",
        content_security_policy=block(**absent(
            "connect_src", "default_src", "form_action", "frame_ancestors", "img_src", "script_src", "style_src",
            type="list"
        )),
        consul=block(ui_url="url"), vault=block(ui_url="url"),
        label=block(text="string", background_color="string", text_color="string"),
    ),
    http_api_response_headers="map", http_allowed_hosts="list",
    sentinel=block(additional_enabled_modules="list !", **{"import": block(True, path="string !", args="list !")}),
    autopilot=block(
        cleanup_dead_servers="bool", server_stabilization_time="duration", last_contact_threshold="duration",
        max_trailing_logs="int", min_quorum="int", enable_redundancy_zones="bool !",
        disable_upgrade_migration="bool -",
        enable_custom_upgrades="bool !",
    ),
    plugin=block(True, args="list", config="any"),
    limits=block(
        https_handshake_timeout="duration", http_max_conns_per_client="int", rpc_handshake_timeout="duration",
        rpc_max_conns_per_client="int",
    ),
    reporting=block(
        license=block(enabled="bool -"), address="string -", export_interval="duration -",
        snapshot_retention_time="duration -",
        disable_product_usage_reporting="bool -",
    ),
    keyring=ConfigBlock(
        {"active": key("bool")} | dict.fromkeys(
            (
                "name", "passphrase_file", "address", "key_name", "mount_path", "namespace", "token", "token_file",
                "tls_ca_cert", "tls_client_cert", "tls_client_key", "lib", "token_label", "slot", "pin_file",
                "key_label", "key_id", "mechanism", "rsa_oaep_hash",
            ),
            key("string"),
        ),
        is_labelled=True,
        named_by="name",
    ),
    eventlog=block(enabled="bool !", level="string -"),
    etcd=block(endpoints="list", ca_file="string", cert_file="string", key_file="string", quota_bytes="int"),
)  # fmt: skip
