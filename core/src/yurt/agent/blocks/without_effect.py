"""Why keys of the configuration have no effect; the agent logs one line at its start for each that asks for another.

A value is quiet where it asks for what happens anyway: `disable_update_check = true` needs no warning, because there is
no update check.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from yurt.agent.config_keys import ACCEPTED, ROOT, ConfigBlock, Key

log = logging.getLogger(__name__)


class NoEffect(msgspec.Struct, frozen=True):
    """The reason, and the values that ask for what happens anyway."""

    reason: str
    quiet: tuple[Any, ...] = ()


_CONSUL = "there is no Consul integration; services, variables and workload identities are Yurt's own"
_VAULT = "there is no Vault integration; variables and workload identities are Yurt's own"
_CIRCONUS = "there is no Circonus sink; use prometheus_metrics, statsd_address, statsite_address or datadog_address"
_BOLT = "the log is not kept in a BoltDB file"
_REPORTS = "the agent reports nothing to anybody"
_CLAIMS = "claims are those of the allocations that run: they end with these, without a collector"
_RPC = (
    "agents share one TCP connection without multiplexing by yamux; it is closed after 4 s without a packet. A server "
    "whose process hangs is left 7 s after a call, and by an idle client within 19 s; without another server address "
    "within 15 s and 27 s"
)

REASONS: Final[Mapping[str, NoEffect]] = {
    "client.alloc_mounts_dir": NoEffect("tasks see the folders of alloc_dir itself; nothing is mounted elsewhere"),
    "client.common_plugin_dir": NoEffect("there are no plugins for `secret` blocks"),
    "client.cpu_disable_dmidecode": NoEffect("dmidecode is never run", (True,)),
    "client.template.max_stale": NoEffect("each server answers templates from its own copy of the state, of any age"),
    "client.template.vault_default_lease_duration": NoEffect(_VAULT),
    "client.template.vault_retry": NoEffect(_VAULT),
    "client.template.use_client_consul_token": NoEffect(_CONSUL, (False,)),
    "client.template.consul_retry": NoEffect(_CONSUL),
    "server.protocol_version": NoEffect("agents agree on the version when they connect"),
    "server.raft_protocol": NoEffect("servers keep the log by etcd, or alone in a file", (3,)),
    "server.csi_volume_claim_gc_interval": NoEffect(_CLAIMS),
    "server.csi_volume_claim_gc_threshold": NoEffect(_CLAIMS),
    "server.csi_plugin_gc_threshold": NoEffect("plugins are those that nodes have: they end with these"),
    "server.default_scheduler_config.node_limit_for_feasibility_checks": NoEffect("every node is looked at"),
    "server.plan_apply_pipeline": NoEffect("the leader groups plans by what waits, without a fixed depth"),
    "server.deploy_query_rate_limit": NoEffect("the leader follows deployments by events, without queries"),
    "server.raft_logstore.boltdb.no_freelist_sync": NoEffect(_BOLT),
    "server.raft_logstore.wal.segment_size_mb": NoEffect("the log has no segments of a fixed size"),
    "server.raft_logstore.disable_log_cache": NoEffect("the storage has no cache of its own", (True,)),
    "server.raft_logstore.verification.enabled": NoEffect("the storage checks its entries itself", (True,)),
    "server.raft_logstore.verification.interval": NoEffect("the storage checks its entries itself"),
    "server.raft_boltdb.no_freelist_sync": NoEffect(_BOLT),
    "server.non_production": NoEffect("there are no licences; every feature is part of each agent"),
    "telemetry.in_memory_collection_interval": NoEffect("/v1/metrics has the figures since the agent's start"),
    "telemetry.in_memory_retention_period": NoEffect("/v1/metrics has the figures since the agent's start"),
    "telemetry.disable_rpc_rate_metrics_labels": NoEffect("rates of requests have no labels of callers", (True,)),
    "tls.verify_server_hostname": NoEffect("always on: a server's certificate names its role and region", (True,)),
    "tls.tls_prefer_server_cipher_suites": NoEffect("the TLS library chooses among the strong suites"),
    "rpc.accept_backlog": NoEffect("the backlog is 1024, or net.core.somaxconn if that is less"),
    "rpc.keep_alive_interval": NoEffect(_RPC),
    "rpc.connection_write_timeout": NoEffect(_RPC),
    "rpc.stream_open_timeout": NoEffect(_RPC),
    "rpc.stream_close_timeout": NoEffect(_RPC),
    "disable_update_check": NoEffect("there is no update check", (True,)),
    "disable_anonymous_signature": NoEffect("there is no update check", (True,)),
    "autopilot.disable_upgrade_migration": NoEffect("servers are never exchanged by their version", (True,)),
    "reporting.license.enabled": NoEffect(_REPORTS, (False,)),
    "reporting.disable_product_usage_reporting": NoEffect(_REPORTS, (True,)),
    "reporting.address": NoEffect(_REPORTS),
    "reporting.export_interval": NoEffect(_REPORTS),
    "reporting.snapshot_retention_time": NoEffect(_REPORTS),
    "eventlog.level": NoEffect("there is no Windows event log"),
    "consul": NoEffect(_CONSUL),
    "vault": NoEffect(_VAULT),
    **{
        f"telemetry.{name}": NoEffect(_CIRCONUS)
        for name, entry in ROOT.entries["telemetry"].entries.items()  # type: ignore[union-attr]
        if name.startswith("circonus_") and isinstance(entry, Key) and entry.support == ACCEPTED
    },
}
"""Reasons by key; a block's is that of all its keys."""


def no_effect_of(path: tuple[str, ...]) -> NoEffect:
    """Why a key has no effect; raises KeyError for one that the table omits."""
    return REASONS.get(".".join(path)) or REASONS[path[0]]


def no_effects(data: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a checked configuration that change nothing, in its order, with the reasons."""
    found = ((path, value, no_effect_of(path)) for path, value in _accepted(data, ROOT, ()))
    return {".".join(path): each.reason for path, value, each in found if value not in each.quiet}


def warn_of_no_effect(data: Mapping[str, Any], known: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Log each of these keys, except those of a `known` configuration, whose keys were logged before."""
    before = no_effects(known)
    for key, reason in no_effects(data).items():
        if key not in before:
            log.warning("configuration without effect: %s: %s", key, reason)


def with_effect(data: Mapping[str, Any], table: ConfigBlock = ROOT) -> dict[str, Any]:
    """A checked configuration without the keys that have no effect."""
    kept: dict[str, Any] = {}
    for name, value in data.items():
        entry = table.entries[name]
        if isinstance(entry, Key):
            kept |= {} if entry.support == ACCEPTED else {name: value}
        elif entry.is_labelled:
            kept[name] = {label: with_effect(body, ConfigBlock(entry.entries)) for label, body in value.items()}
        else:
            kept[name] = with_effect(value, entry)
    return kept


def _accepted(
    data: Mapping[str, Any], table: ConfigBlock, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in data.items():
        entry = table.entries[name]
        if isinstance(entry, Key):
            if entry.support == ACCEPTED:
                yield (*above, name), value
        elif entry.is_labelled:
            for body in value.values():
                yield from _accepted(body, ConfigBlock(entry.entries), (*above, name))
        else:
            yield from _accepted(value, entry, (*above, name))
