"""A server's settings and the limits of its loops."""

from __future__ import annotations

from yurt.sdk.value import StrMap, Value, no_entries
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration

HOUR_S = 3600.0


class GcThresholds(Value):
    """The minimum age, in seconds, of terminal objects before garbage collection."""

    interval_s: float = 300.0
    eval_s: float = HOUR_S
    batch_eval_s: float = 24 * HOUR_S
    job_s: float = 4 * HOUR_S
    node_s: float = 24 * HOUR_S
    deployment_s: float = HOUR_S
    root_key_interval_s: float = 600.0
    root_key_s: float = HOUR_S
    acl_token_s: float = HOUR_S


class RejectionConfig(Value):
    """The number of refused plans (`threshold` in `window_s`) after which a node becomes ineligible."""

    enabled: bool = False
    threshold: int = 100
    window_s: float = 300.0


class IntroductionConfig(Value):
    """The introduction of new clients; `enforcement` is none, warn or strict."""

    enforcement: str = "warn"
    default_ttl_s: float = 300.0
    max_ttl_s: float = 1800.0


class AclConfig(Value):
    """Access control."""

    enabled: bool = False
    token_ttl_s: float = 30.0
    """The time in seconds for which an agent without a server may cache a server's answer about a token."""
    policy_ttl_s: float = 30.0
    role_ttl_s: float = 30.0
    replication_token: str = ""
    """The secret of a management token of the authoritative region; never shown or logged."""
    token_min_expiration_ttl_s: float = 60.0
    token_max_expiration_ttl_s: float = 24 * HOUR_S


AEAD, PASSPHRASE, PKCS11, TRANSIT = "aead", "passphrase", "pkcs11", "transit"
"""Kinds of key encryption keys; with `aead` root keys are stored unencrypted."""


class KeyProviderConfig(Value):
    """One `keyring` block: a key encryption key, which seals root keys on disk."""

    kind: str
    id: str
    """The kind, followed by a point and the block's name if it has one; stored in each file that it wrapped."""
    is_active: bool = False
    settings: StrMap = no_entries()


class ServerConfig(Value):
    """Settings of one server."""

    name: str
    region: str = "global"
    authoritative_region: str = ""
    """The region that decides about namespaces and node pools of all regions; "" if this one does."""
    datacenter: str = "dc1"
    num_schedulers: int = 1
    enabled_schedulers: tuple[str, ...] = ()
    """The job types that the workers schedule; empty means all."""
    heartbeat_grace_s: float = 10.0
    min_heartbeat_ttl_s: float = 10.0
    max_heartbeats_per_second: float = 50.0
    failover_heartbeat_ttl_s: float = 300.0
    gc: GcThresholds = GcThresholds()
    acl: AclConfig = AclConfig()
    introduction: IntroductionConfig = IntroductionConfig()
    rejections: RejectionConfig = RejectionConfig()
    job_max_count: int = 50000
    job_max_priority: int = 100
    job_default_priority: int = 50
    job_tracked_versions: int = 6
    job_max_source_size: int = 1_000_000
    event_buffer_size: int = 100
    snapshot_interval_s: float = 120.0
    snapshot_threshold: int = 8192
    trailing_entries: int = 10240
    dev: bool = False
    rpc_addr: str = "127.0.0.1:4647"
    scheduler_config: SchedulerConfiguration = SchedulerConfiguration()
    autopilot_config: AutopilotConfiguration = AutopilotConfiguration()
    root_key_rotation_s: float = 720 * HOUR_S
    oidc_issuer: str = ""
    """The base URL of the discovery document and the public keys; "" for no document."""
    data_dir: str = ""
    keyring: tuple[KeyProviderConfig, ...] = ()
    """The key encryption keys; without any, root keys are stored unencrypted."""
