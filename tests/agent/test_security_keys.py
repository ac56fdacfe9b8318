"""Every setting that protects a cluster is enforced, or refused at the start as not available; none is ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.agent.config_check import NOT_AVAILABLE, check
from yurt.agent.config_keys import ABSENT, ACCEPTED, ROOT, USED, ConfigBlock, Key

ROOT_FOLDER = Path(__file__).resolve().parents[2]
REFERENCE = ROOT_FOLDER.parent / "shared" / "reference" / "agent-config.md"
PROTECTIVE = re.compile(
    r"allow|deny|denylist|disable_|encrypt|verify|cipher|min_version|cert|ca_file|key_file|token|secret|auth|sandbox"
    r"|isolation|enforce|identity_ttl|max_conns|handshake|audit|acl|sentinel|response_headers|remote_exec|_src$|limit"
    r"|inspection|reject_job|csp|user|frame_ancestors|form_action|upgrade_mode|oidc|host_volume|intro|max_size"
)
"""Names in the reference that are looked at."""

ENFORCED = {
    "acl.enabled": "tests/agent/test_process.py",
    "acl.policy_ttl": "tests/agent/test_config.py",
    "acl.replication_token": "tests/agent/test_config.py",
    "acl.role_ttl": "tests/agent/test_config.py",
    "acl.token_max_expiration_ttl": "tests/http/test_acl.py",
    "acl.token_min_expiration_ttl": "tests/http/test_acl.py",
    "acl.token_ttl": "tests/agent/test_config.py",
    "server.acl_token_gc_threshold": "tests/server",
    "client.disable_remote_exec": "tests/client/test_client.py",
    "client.users": "tests/client/test_dynamic_users.py",
    "client.users.dynamic_user_min": "tests/agent/test_config.py",
    "client.users.dynamic_user_max": "tests/agent/test_config.py",
    "client.host_volumes_dir": "tests/client/test_host_volumes.py",
    "client.host_volume_plugin_dir": "tests/client/test_host_volumes.py",
    "client.host_volume": "tests/client/test_volumes.py",
    "client.artifact.http_max_size": "tests/client/test_artifacts.py",
    "client.artifact.decompression_file_count_limit": "tests/client/test_artifacts.py",
    "client.artifact.decompression_size_limit": "tests/client/test_artifacts.py",
    "client.artifact.disable_artifact_inspection": "tests/client/test_artifacts.py",
    "client.artifact.disable_filesystem_isolation": "tests/client",
    "client.artifact.filesystem_isolation_extra_paths": "tests/client",
    "client.artifact.s3_trusted_hosts": "tests/client/test_artifact_s3.py",
    "server.client_introduction.enforcement": "tests/server/test_introduction.py",
    "server.client_introduction.default_identity_ttl": "tests/server/test_introduction.py",
    "server.client_introduction.max_identity_ttl": "tests/server/test_introduction.py",
    "server.job_max_source_size": "tests/server/test_limits_served.py",
    "server.default_scheduler_config.reject_job_registration": "tests/http/test_rules.py",
    "tls.http": "e2e/test_tls.py",
    "tls.rpc": "e2e/test_tls.py",
    "tls.ca_file": "e2e/test_tls.py",
    "tls.cert_file": "e2e/test_tls.py",
    "tls.key_file": "e2e/test_tls.py",
    "tls.verify_https_client": "e2e/test_tls.py",
    "tls.rpc_upgrade_mode": "e2e/test_turning_on_tls.py",
    "tls.tls_min_version": "e2e/test_tls.py",
    "limits.https_handshake_timeout": "tests/http/test_connections.py",
    "limits.http_max_conns_per_client": "tests/http/test_connections.py",
    "limits.rpc_handshake_timeout": "tests/rpc",
    "limits.rpc_max_conns_per_client": "tests/rpc",
    "http_api_response_headers": "tests/http",
    "audit.enabled": "tests/agent/test_audit_config.py",
    "audit.sink": "tests/audit",
    "audit.filter": "tests/audit",
    "server.oidc_issuer": "tests/http/test_discovery.py",
    "server.search.limit_results": "tests/http/test_cluster.py",
}
"""Where tests of its effect are."""
REFUSED: dict[str, Any] = {
    "sentinel.additional_enabled_modules": ["x"],
    "sentinel.import": {"x": {"path": "/x"}},
    "server.encrypt": "cg8StVXbQJ0gPvMd9o7yrg==",
    "tls.tls_cipher_suites": "TLS_AES_128_GCM_SHA256",
    "ui.content_security_policy.connect_src": ["'self'"],
    "ui.content_security_policy.default_src": ["'self'"],
    "ui.content_security_policy.form_action": ["'self'"],
    "ui.content_security_policy.frame_ancestors": ["'self'"],
    "ui.content_security_policy.img_src": ["'self'"],
    "ui.content_security_policy.script_src": ["'self'"],
    "ui.content_security_policy.style_src": ["'self'"],
    "telemetry.circonus_api_token": "x",
}
"""A value that asks for protection which there is not."""
MEANINGLESS = {
    "client.cpu_disable_dmidecode": "dmidecode is never run",
    "disable_anonymous_signature": "nothing is sent",
    "disable_update_check": "nothing is sent",
    "reporting.disable_product_usage_reporting": "nothing is sent",
    "server.deploy_query_rate_limit": "bounds nothing that others can ask for",
    "server.raft_logstore.disable_log_cache": "storage",
    "server.default_scheduler_config.node_limit_for_feasibility_checks": "placement",
    "telemetry.disable_rpc_rate_metrics_labels": "figures",
    "tls.tls_prefer_server_cipher_suites": "the library chooses",
    "client.template.use_client_consul_token": "consul is not available",
    "tls.verify_server_hostname": "always on: the name of a server's certificate is its role and region",
    "autopilot.disable_upgrade_migration": "servers",
}
"""Named like a protection, and accepted without effect; with the reason."""
NO_PROTECTION = {
    "server.search.limit_query": "figures",
    "server.authoritative_region": "says which region decides",
    "telemetry.allowed_metadata_keys_in_metrics": "figures",
    "telemetry.disable_allocation_hook_metrics": "figures",
    "telemetry.disable_dispatched_job_summary_metrics": "figures",
    "telemetry.disable_hostname": "figures",
    "telemetry.disable_quota_utilization_metrics": "figures",
}
"""Named like a protection, and used for something else."""
BLOCKS = {"acl", "audit", "limits", "sentinel", "tls", "client_introduction", "content_security_policy"}
"""Tables of the reference of which every key is looked at."""


def support(path: str) -> str:
    """What the table of keys says of a key."""
    entry: Any = ROOT
    for step in path.split("."):
        entry = entry.entries[step]
    return entry.support if isinstance(entry, Key) else USED


def document(path: str, value: Any) -> dict[str, Any]:
    """A configuration with one key."""
    for step in reversed(path.split(".")):
        value = {step: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_a_protection_that_there_is_not_stops_the_start(path: str) -> None:
    _, problems = check(document(path, REFUSED[path]), ROOT)
    assert [NOT_AVAILABLE in problem.text for problem in problems] == [True]


@pytest.mark.parametrize("path", sorted(ENFORCED))
def test_a_protection_that_is_enforced_is_read_and_tested(path: str) -> None:
    assert support(path) == USED
    where = ROOT_FOLDER / ENFORCED[path]
    files = [where] if where.is_file() else sorted(where.rglob("test_*.py"))
    assert files


def keys_of(table: ConfigBlock, path: str = "") -> Iterator[tuple[str, str]]:
    """Every key with what the table says of it."""
    for name, entry in table.entries.items():
        where = f"{path}{name}"
        if isinstance(entry, Key):
            yield where, entry.support
        else:
            yield from keys_of(entry, f"{where}.")


def test_no_key_named_like_a_protection_is_accepted_without_effect() -> None:
    ignored = {
        path
        for path, kind in keys_of(ROOT)
        if kind == ACCEPTED and PROTECTIVE.search(path.rpartition(".")[2]) and not path.startswith(("consul", "vault"))
    }
    assert {path for path in ignored if path not in MEANINGLESS} == set()


@pytest.mark.parametrize(
    ("path", "kind"), [*((path, ACCEPTED) for path in MEANINGLESS), *((path, USED) for path in NO_PROTECTION)]
)
def test_a_key_named_like_a_protection_is_used_as_its_exemption_says(path: str, kind: str) -> None:
    assert support(path) == kind


def named_in_reference() -> Iterator[str]:
    """Keys of the reference's tables as paths, where their table says where they belong."""
    parents = {
        "agent": "", "client_introduction": "server.", "default_scheduler_config": "server.", "search": "server.",
        "raft_logstore": "server.", "artifact": "client.", "users": "client.", "content_security_policy": "ui.",
        "client": "", "server": "", "host_volume": "client.", "host_network": "client.",
    }  # fmt: skip
    table = ""
    for line in REFERENCE.read_text().splitlines():
        if found := re.match(r"### (\w+)", line):
            table = found[1]
        elif (found := re.match(r"\| (\w+) \|", line)) and found[1] not in ("name", "key", "type"):
            prefix = parents.get(table, "") + (f"{table}." if table != "agent" else "")
            if table and (table in BLOCKS or PROTECTIVE.search(found[1])):
                yield f"{prefix}{found[1]}"


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference lies beside the repository, not in it")
def test_the_reference_names_no_other_protection() -> None:
    decided = {*ENFORCED, *REFUSED, *MEANINGLESS, *NO_PROTECTION}
    missing = {path for path in named_in_reference() if path not in decided and _support(path) != ABSENT}
    assert missing == set()


def _support(path: str) -> str:
    entry: Any = ROOT
    for step in path.split("."):
        entry = entry.entries.get(step) if isinstance(entry, ConfigBlock) else None
    return entry.support if isinstance(entry, Key) else ABSENT if isinstance(entry, ConfigBlock) else ""
