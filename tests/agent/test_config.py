"""The configuration is read whole: every mistake at once, each with its place; nothing that protects is ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.agent.component_configs import (
    agent_info,
    artifact_limits,
    bytes_of,
    client_config,
    exposes_debug_data,
    issuer_of,
    server_config,
    shutdown_drain,
    template_settings,
    user_range,
)
from yurt.agent.config import USUAL_TOKEN_TIMES, AgentConfig, make_config
from yurt.agent.config_check import check
from yurt.agent.config_files import read_files
from yurt.agent.config_keys import ABSENT, ROOT, ConfigBlock, Entry, Key
from yurt.agent.data_dir import open_data_dir
from yurt.agent.shown_config import SECRETS, shown_config
from yurt.api.redaction import is_secret_name
from yurt.client.files.users import UserRange
from yurt.http.agent_info import SearchSettings
from yurt.sdk.errors import Conflict, Invalid
from yurt.sdk.value import Duration, parse_duration, seconds
from yurt.server.config import AclConfig, RejectionConfig, ServerConfig
from yurt.structs.node import DrainSpec

TOKEN = "11111111-2222-3333-4444-555555555555"
SERVER = {"server": {"enabled": True}, "client": {"enabled": True}, "data_dir": "/tmp/x"}


def config_of(data: dict[str, Any], *, is_dev: bool = False) -> AgentConfig:
    shaped, problems = check(data, ROOT)
    assert problems == []
    return make_config(shaped, {}, is_dev=is_dev)


def test_every_mistake_is_told_with_file_line_and_near_miss(tmp_path: Path) -> None:
    file = tmp_path / "agent.hcl"
    file.write_text(
        'nam = "x"\nports {\n  http = "y"\n}\nserver {\n  bootstrap_expct = 1\n}\nclient {\n  gc_interval = 5\n}\n'
    )

    with pytest.raises(Invalid) as caught:
        read_files([str(file)])

    assert str(caught.value).splitlines() == [
        f'{file}:1:1: unknown key "nam" (did you mean "name"?)',
        f'{file}:3:3: "ports.http" must be a whole number, not "y"',
        f'{file}:6:3: unknown key "server.bootstrap_expct" (did you mean "bootstrap_expect"?)',
        f'{file}:9:3: "client.gc_interval" must be a duration in quotes, such as "30s", not 5',
    ]


def test_nothing_is_a_negative_number_or_time() -> None:
    data = {
        "server": {"bootstrap_expect": -1, "num_schedulers": -2},
        "client": {"gc_interval": "-5s", "gc_disk_usage_threshold": -0.5},
    }
    assert [(problem.path[-1], problem.text.partition('" ')[2]) for problem in check(data, ROOT)[1]] == [
        ("bootstrap_expect", "must be 0 or more, not -1"),
        ("num_schedulers", "must be 0 or more, not -2"),
        ("gc_interval", 'must be 0 or more, not "-5s"'),
        ("gc_disk_usage_threshold", "must be 0 or more, not -0.5"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"tls": [{"tls_cipher_suites": "x"}]},
        {"vault": {"enabled": True}},
        {"consul": {"address": "127.0.0.1:8500"}},
        {"server": {"encrypt": "key"}},
        {"sentinel": {"import": {"x": {"path": "/p"}}}},
    ],
)
def test_a_setting_that_is_not_built_stops_the_start(data: dict[str, Any]) -> None:
    _, problems = check(data, ROOT)

    assert len(problems) == 1
    assert "not available in this version" in problems[0].text


@pytest.mark.parametrize(
    "data",
    [
        {"acl": {"enabled": True}, "tls": {"http": False}, "vault": {"enabled": False}, "audit": {"enabled": False}},
        {"consul": {}, "disable_update_check": True, "telemetry": {"prometheus_metrics": True}},
        {"client": {"options": {"driver.raw_exec.enable": "1"}, "disable_remote_exec": True}},
        {"limits": {"http_max_conns_per_client": 100}, "server": {"raft_multiplier": 5}},
        {"plugin": {"raw_exec": [{"config": [{"enabled": True}]}]}},
        {"plugin": [{"raw_exec": {"config": {"enabled": True}}}, {"docker": {"config": {}}}]},
    ],
)
def test_what_asks_for_nothing_special_is_accepted(data: dict[str, Any]) -> None:
    assert check(data, ROOT)[1] == []


def test_json_needs_no_extension_and_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(json.dumps({"name": "from-json", "server": {"enabled": True}}))
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.hcl").write_text('region = "second"\nclient {\n  meta {\n    b = 2\n  }\n}\n')
    (folder / "a.json").write_text(json.dumps({"region": "first", "client": {"meta": {"a": "1"}}}))
    (folder / "ignored.txt").write_text("not read")

    merged, sources = read_files([str(tmp_path / "plain"), str(folder)])

    assert merged["name"] == "from-json"
    assert merged["region"] == "second"
    assert merged["client"]["meta"] == {"a": "1", "b": "2"}
    assert [Path(name).name for name in sources.names] == ["plain", "a.json", "b.hcl"]


def test_dev_mode_lies_under_the_files() -> None:
    config = config_of({"ports": {"http": 5000}, "name": "n", "client": {"meta": {"k": "v"}}}, is_dev=True)

    assert (config.is_server, config.is_client, config.name) == (True, True, "n")
    assert (config.http_addresses, config.http_port, config.rpc_port) == (("127.0.0.1",), 5000, 4647)
    assert config.advertise_http == "127.0.0.1:5000"
    assert config.client["options"]["driver.raw_exec.enable"] == "true"
    assert config.log_level == "DEBUG" and not config.has_own_log_level


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({}, "Must specify either server, client or dev mode"),
        ({**SERVER, "data_dir": ""}, "Must specify a data directory"),
        ({**SERVER, "data_dir": "data"}, f'data_dir "data" must be an absolute path; write {Path.cwd()}/data'),
        ({**SERVER, "server": {"enabled": True, "retry_join": ["provider=aws x"]}}, "is not a server address"),
        ({**SERVER, "server": {"enabled": True, "bootstrap_expect": 3}, "name": "a=b"}, "cannot be the name"),
        ({**SERVER, "etcd": {"endpoints": ["10.0.0.1:2379"]}}, "must be a URL such as http://10.0.0.1:2379"),
        ({**SERVER, "etcd": {"ca_file": "/ca.pem"}}, "etcd.endpoints is missing"),
        ({**SERVER, "etcd": {"endpoints": ["https://e:1"], "key_file": "/k"}}, "cert_file and key_file together"),
        ({**SERVER, "ports": {"etcd": 70000}}, "ports.etcd is 70000"),
        ({"client": {"enabled": True}, "data_dir": "/x"}, "needs to know where servers are"),
        (
            {"client": {"enabled": True, "server_join": {"retry_join": ["provider=aws tag=x"]}}, "data_dir": "/x"},
            "finding servers by a cloud provider is not available",
        ),
        ({**SERVER, "log_level": "loud"}, 'log_level "LOUD" is not one of'),
        ({**SERVER, "ports": {"rpc": 99999}}, "ports.rpc is 99999"),
        ({**SERVER, "advertise": {"http": "10.0.0.1:99999"}}, 'advertise.http is "10.0.0.1:99999"'),
        ({**SERVER, "advertise": {"rpc": "10.0.0.1:x"}}, "a port is a number"),
        ({**SERVER, "client": {"max_dynamic_port": 5}}, "min_dynamic_port is 20000 and max_dynamic_port 5"),
        ({**SERVER, "bind_addr": "{{ GetPrivateIP }}"}, "Address templates"),
        ({**SERVER, "ports": {"rpc": 5000, "serf": 5000}}, "ports.rpc and ports.serf are both 5000 on 0.0.0.0"),
        (
            {**SERVER, "server": {"enabled": True, "bootstrap_expect": 3}, "ports": {"rpc": 5001, "serf": 5000}},
            r"ports.rpc and ports.etcd \(the default: the serf port plus one\) are both 5001 .* ports { etcd = ... }",
        ),
    ],
)
def test_contradictions_stop_the_start(data: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        config_of(data)


def test_a_flag_is_held_to_the_same_rules() -> None:
    with pytest.raises(Invalid, match="bootstrap_expect must be 1 or more"):
        make_config(SERVER, {"server": {"bootstrap_expect": -1}}, is_dev=False)


def test_settings_reach_server_and_client(tmp_path: Path) -> None:
    config = config_of(
        {
            "data_dir": str(tmp_path),
            "datacenter": "east",
            "server": {"enabled": True, "heartbeat_grace": "3s", "eval_gc_threshold": "2h", "job_max_count": 7,
                       "default_scheduler_config": {"scheduler_algorithm": "spread"}},
            "client": {"enabled": True, "node_class": "big", "max_kill_timeout": "1m", "reserved": {"memory": 64},
                       "host_volume": {"v": {"path": "/srv"}}},
        }
    )  # fmt: skip
    data = open_data_dir(config.data_dir)
    server, client = server_config(config, data), client_config(config, data)
    data.close()

    assert (server.heartbeat_grace_s, server.gc.eval_s, server.job_max_count) == (3.0, 7200.0, 7)
    assert server.scheduler_config.scheduler_algorithm == "spread"
    assert (client.datacenter, client.node_class, client.max_kill_timeout_s) == ("east", "big", 60.0)
    assert client.reserved.memory_mb == 64
    assert client.host_volumes["v"].path == "/srv"
    assert client.alloc_dir == str(tmp_path / "alloc")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, DrainSpec(deadline=seconds(3600))),
        ({"deadline": "2m", "ignore_system_jobs": True}, DrainSpec(deadline=seconds(120), ignore_system_jobs=True)),
        ({"deadline": "2m", "force": True}, DrainSpec(deadline=Duration(-1))),
    ],
)
def test_a_drain_on_shutdown_reaches_the_client(
    tmp_path: Path, block: dict[str, Any], expected: DrainSpec, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**SERVER, "data_dir": str(tmp_path), "client": {"enabled": True, "drain_on_shutdown": block}}
    assert shutdown_drain(config_of({**given, "leave_on_terminate": True})) == expected
    assert not caplog.messages
    assert shutdown_drain(config_of(given)) == expected
    assert "has no effect: set leave_on_interrupt or leave_on_terminate" in caplog.text


def settings_of(folder: Path, **server: Any) -> ServerConfig:
    data = open_data_dir(str(folder))
    data.close()
    return server_config(config_of({"server": {"enabled": True, **server}, "data_dir": str(folder)}), data)


def test_limits_of_jobs_reach_the_server(tmp_path: Path) -> None:
    made = settings_of(tmp_path, job_max_source_size="2KB", job_max_priority=32_766, job_default_priority=200)
    assert (made.job_max_source_size, made.job_max_priority, made.job_default_priority) == (2000, 32_766, 200)


def test_the_acl_block_reaches_the_server(tmp_path: Path) -> None:
    data = open_data_dir(str(tmp_path))
    data.close()
    block = {"enabled": True, "token_ttl": "5s", "policy_ttl": "6s", "role_ttl": "7s", "replication_token": TOKEN,
             "token_min_expiration_ttl": "2m", "token_max_expiration_ttl": "8h"}  # fmt: skip
    made = server_config(config_of({**SERVER, "bind_addr": "::1", "data_dir": str(tmp_path), "acl": block}), data)

    assert made.acl == AclConfig(
        enabled=True, token_ttl_s=5.0, policy_ttl_s=6.0, role_ttl_s=7.0, replication_token=TOKEN,
        token_min_expiration_ttl_s=120.0, token_max_expiration_ttl_s=28_800.0,
    )  # fmt: skip
    assert settings_of(tmp_path, acl_token_gc_threshold="2h").gc.acl_token_s == 7200.0
    assert not settings_of(tmp_path).acl.enabled


OPEN = {**SERVER, "bind_addr": "10.0.0.5", "acl": {"enabled": True}}


@pytest.mark.parametrize(
    ("more", "ports"),
    [
        ({}, "RPC 10.0.0.5:4647 and Serf 10.0.0.5:4648, and tls.rpc is off"),
        ({"bind_addr": "::1", "addresses": {"serf": "0.0.0.0"}}, "reach Serf 0.0.0.0:4648, and tls.rpc is off"),
        ({"bind_addr": "127.0.0.1", "addresses": {"rpc": "yurt.internal"}}, "reach RPC yurt.internal:4647, and"),
        ({"tls": {"rpc": True, "rpc_upgrade_mode": True}}, "and tls.rpc_upgrade_mode lets agents in without TLS"),
        ({"tls": {"http": True}}, "and tls.rpc is off"),
    ],
)
def test_with_access_control_no_server_port_is_open_without_tls(more: dict[str, Any], ports: str) -> None:
    with pytest.raises(Invalid) as refusal:
        config_of({**OPEN, **more})
    assert ports in str(refusal.value)
    assert "acl { allow_rpc_without_tls = true }" in str(refusal.value)


@pytest.mark.parametrize(
    "more",
    [
        {"acl": {"enabled": False}},
        {"acl": {"enabled": True, "allow_rpc_without_tls": True}},
        {"bind_addr": "127.0.0.1", "addresses": {"http": "0.0.0.0", "serf": "::1"}},
        {"tls": {"rpc": True}},
        {"server": {"enabled": False}, "client": {"enabled": True, "servers": ["10.0.0.1"]}},
    ],
)
def test_a_server_port_that_is_safe_or_allowed_starts(more: dict[str, Any]) -> None:
    assert config_of({**OPEN, **more}).http_port == 4646


def test_dev_mode_runs_both_parts_whatever_a_file_says_and_takes_the_rest_of_it() -> None:
    off = {"server": {"enabled": False}, "client": {"enabled": False}, "name": "mine", "ports": {"http": 7646}}
    config = config_of(off, is_dev=True)
    assert (config.is_server, config.is_client, config.name, config.http_port) == (True, True, "mine", 7646)


def test_a_dev_agent_has_no_server_port() -> None:
    assert config_of({"bind_addr": "0.0.0.0", "acl": {"enabled": True}}, is_dev=True).has_acl


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"token_min_expiration_ttl": "25h"}, 'is "25h", longer than token_max_expiration_ttl, "24h" (token_max_exp'),
        ({"token_min_expiration_ttl": "2h", "token_max_expiration_ttl": "1h"}, 'is "2h", longer than token_max_expi'),
        ({"token_min_expiration_ttl": "0s"}, 'acl.token_min_expiration_ttl is "0s"; it must be above 0.'),
        ({"replication_token": "secret"}, "replication_token must be the Secret ID of a management token"),
    ],
)
def test_settings_of_access_control_that_cannot_work_are_refused(block: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        config_of({**SERVER, "acl": block})
    assert text in str(refusal.value) and "secret" not in str(refusal.value)


def test_mistakes_of_access_control_and_audit_log_are_told_together() -> None:
    acl = {"token_min_expiration_ttl": "2h", "token_max_expiration_ttl": "1h", "replication_token": "x"}
    with pytest.raises(Invalid) as refusal:
        config_of({**SERVER, "acl": acl, "audit": {"enabled": True, "sink": {"a": {"type": "syslog"}}}})
    assert [line.split(" ")[0] for line in str(refusal.value).splitlines()] == [
        "acl.token_min_expiration_ttl", "acl.replication_token", "audit",
    ]  # fmt: skip


def test_the_usual_bounds_of_a_tokens_time_are_those_of_the_servers() -> None:
    usual = AclConfig()
    times = (usual.token_min_expiration_ttl_s, usual.token_max_expiration_ttl_s)
    assert tuple(parse_duration(text) / 1e9 for text in USUAL_TOKEN_TIMES.values()) == times


def test_a_server_may_leave_scheduling_to_the_others(tmp_path: Path) -> None:
    assert settings_of(tmp_path, num_schedulers=0).num_schedulers == 0
    assert settings_of(tmp_path).num_schedulers == 1


def test_nodes_that_refuse_plans_are_taken_out_where_that_is_asked_for(tmp_path: Path) -> None:
    tracker = {"enabled": True, "node_threshold": 7, "node_window": "1m"}
    assert settings_of(tmp_path, plan_rejection_tracker=tracker).rejections == RejectionConfig(
        enabled=True, threshold=7, window_s=60.0
    )


@pytest.mark.parametrize(
    ("server", "text"),
    [
        ({"job_max_priority": 99}, "job_max_priority must be between 100 and 32766"),
        ({"job_max_priority": 32_767}, "job_max_priority must be between 100 and 32766"),
        ({"job_default_priority": 101}, "job_default_priority must be between 1 and 100"),
        ({"job_max_source_size": "much"}, "'much' is not a size"),
    ],
)
def test_limits_that_no_job_can_have_are_refused(tmp_path: Path, server: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        settings_of(tmp_path, **server)


def test_the_shown_configuration_hides_secrets() -> None:
    config = config_of({**SERVER, "acl": {"replication_token": TOKEN}, "http_api_response_headers": {"X-A": "b"}})
    shown = shown_config(config)

    assert TOKEN not in str(shown)
    assert shown["HTTPAPIResponseHeaders"] == {"X-A": "b"}
    assert shown["Client"]["Enabled"] is True


def test_the_shown_configuration_has_what_the_files_leave_out() -> None:
    shown = shown_config(config_of({**SERVER, "bind_addr": "127.0.0.1", "acl": {"enabled": True, "token_ttl": "10s"}}))

    assert (shown["ACL"]["TokenTTL"], shown["ACL"]["PolicyTTL"]) == (10_000_000_000, 30_000_000_000)
    assert shown["Limits"]["HTTPMaxConnsPerClient"] == 100
    assert (shown["LeaveOnInt"], shown["Telemetry"]["PrometheusMetrics"], shown["UI"]["Enabled"]) == (
        False,
        False,
        True,
    )


def test_the_shown_configuration_has_nomads_names_and_types() -> None:
    """As an agent of Nomad 1.4 answered; durations are numbers where Nomad keeps them parsed."""
    client = {"gc_interval": "10m", "max_kill_timeout": "1m", "host_volume": {"data": {"path": "/srv"}}}
    shown = shown_config(config_of({**SERVER, "bind_addr": "127.0.0.1", "client": client, "tls": {"http": False}}))

    tls = {"EnableHTTP", "EnableRPC", "CAFile", "CertFile", "KeyFile", "VerifyHTTPSClient", "RPCUpgradeMode"}
    assert tls <= shown["TLSConfig"].keys()
    assert (shown["Client"]["GCInterval"], shown["Client"]["MaxKillTimeout"]) == (600_000_000_000, "1m")
    assert {"CNIPath", "CpuCompute", "GCDiskUsageThreshold", "NoHostUUID", "ReserveableCores"} <= shown["Client"].keys()
    assert shown["Client"]["HostVolumes"] == [{"Name": "data", "Path": "/srv"}]
    assert shown["Client"]["Reserved"] == {"CPU": 0, "MemoryMB": 0, "DiskMB": 0, "ReservedPorts": "", "Cores": ""}
    assert shown["Server"]["FailoverHeartbeatTTL"] == 300_000_000_000
    assert shown["Server"]["PlanRejectionTracker"]["NodeWindow"] == 300_000_000_000
    assert {"StatsiteAddr", "StatsdAddr", "DataDogAddr", "DataDogTags"} <= shown["Telemetry"].keys()
    assert shown["Addresses"] == {"HTTP": "127.0.0.1", "RPC": "127.0.0.1", "Serf": "127.0.0.1"}
    assert shown["AdvertiseAddrs"]["Serf"] == "127.0.0.1:4648"
    assert (shown["Audit"], shown["Plugins"]) == ({"Enabled": False, "Sinks": None, "Filters": None}, None)


def test_the_shown_configuration_hides_secrets_of_plugins_options_and_headers() -> None:
    auth = {"config": "/etc/auth.json", "password": "geheim", "deep": [{"x": "geheim"}]}
    docker = {"auth": auth, "registry_token": "geheim", "allow_privileged": True}
    given: dict[str, Any] = {
        **SERVER,
        "client": {"options": {"consul.token": "geheim", "driver.raw_exec.enable": "1"}, "intro_token": "geheim"},
        "http_api_response_headers": {"Authorization": "geheim"},
        "keyring": {
            "transit": {"address": "https://me:geheim@vault", "token": "geheim", "key_name": "k", "active": True}
        },
        "etcd": {"endpoints": ["https://me:geheim@host:2379"]},
        "telemetry": {"otlp": {"endpoint": "https://me:geheim@host:4318"}},
        "plugin": {
            "docker": {"config": [docker], "args": ["-token", "geheim", "--api-key=geheim", "-v"]},
            "other": {"config": {"url": "https://me:geheim@host/x", "pem": "-----BEGIN RSA PRIVATE KEY-----geheim"}},
        },
    }
    shown = shown_config(config_of(given))

    assert "geheim" not in json.dumps(shown)
    plugins = {plugin["Name"]: plugin for plugin in shown["Plugins"]}
    assert plugins["docker"]["Config"][0]["allow_privileged"] is True
    assert plugins["docker"]["Args"] == ["-token", "<redacted>", "--api-key=<redacted>", "-v"]
    assert plugins["other"]["Config"]["url"] == "https://<redacted>@host/x"
    assert shown["Client"]["Options"]["driver.raw_exec.enable"] == "1"


def test_every_key_of_the_agents_own_that_is_named_for_a_secret_is_blanked_or_known_to_be_none() -> None:
    """Durations, names of files and switches that stand near a secret; all else must be in SECRETS."""
    harmless = {
        "allowed_metadata_keys_in_metrics", "license_env", "key_name", "tls_client_key", "key_id", "key_label",
        "token_label",
    }  # fmt: skip

    def named(table: ConfigBlock) -> Iterator[str]:
        for name, entry in table.entries.items():
            if isinstance(entry, ConfigBlock):
                yield from named(entry)
            elif is_secret_name(name) and entry.type != "bool":
                yield name

    assert set(named(ROOT)) - SECRETS - harmless == set()


def test_a_data_directory_has_one_owner(tmp_path: Path) -> None:
    first = open_data_dir(str(tmp_path / "data"))
    with pytest.raises(Conflict, match="in use by another process"):
        open_data_dir(str(tmp_path / "data"))
    first.close()

    open_data_dir(str(tmp_path / "data")).close()


def test_a_temporary_data_directory_goes_when_it_is_closed() -> None:
    data = open_data_dir("")
    (data.alloc / "left").write_text("x")
    data.close()

    assert not data.root.exists()


def test_a_file_in_the_way_of_the_data_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Invalid, match=r"[Cc]hoose another"):
        open_data_dir(str(tmp_path / "file" / "data"))


def test_every_key_of_the_table_has_a_known_type() -> None:
    def keys(block: ConfigBlock) -> list[tuple[str, Key]]:
        found: list[tuple[str, Key]] = []
        for name, entry in block.entries.items():
            item: Entry = entry
            found += keys(item) if isinstance(item, ConfigBlock) else [(name, item)]
        return found

    known = {"string", "bool", "int", "float", "list", "map", "duration", "url", "any"}
    assert all(key.type in known for _, key in keys(ROOT))
    assert all(key.support == ABSENT for name, key in keys(ROOT) if name == "encrypt")


def test_the_template_block_reaches_the_client(tmp_path: Path) -> None:
    block = {
        "function_denylist": ["env"],
        "disable_file_sandbox": True,
        "wait": {"min": "1s", "max": "2s"},
        "nomad_retry": {"attempts": 4, "backoff": "1s", "max_backoff": "3s"},
    }
    config = config_of({**SERVER, "data_dir": str(tmp_path), "client": {"enabled": True, "template": block}})
    data = open_data_dir(config.data_dir)
    settings = client_config(config, data).template
    data.close()
    assert (settings.denied_functions, settings.is_sandboxed) == (("env",), False)
    assert (settings.wait_min_s, settings.wait_max_s, settings.retry_max_s) == (1.0, 2.0, 3.0)
    assert settings.retry_attempts == 4


def test_a_wait_of_templates_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(Invalid, match=r"min .* is longer than max"):
        template_settings({"wait": {"min": "3m", "max": "1m"}})


def test_the_limits_of_artifacts_reach_the_client(tmp_path: Path) -> None:
    block = {
        "http_read_timeout": "5m", "http_max_size": "10MB", "decompression_size_limit": "1.5GiB",
        "decompression_file_count_limit": 7, "set_environment_variables": "HTTP_PROXY, NO_PROXY",
        "disable_artifact_inspection": True, "disable_filesystem_isolation": True,
        "filesystem_isolation_extra_paths": ["d:rx:/opt/git"], "s3_trusted_hosts": ["minio.example:9000"],
    }  # fmt: skip
    config = config_of({**SERVER, "data_dir": str(tmp_path), "client": {"enabled": True, "artifact": block}})
    data = open_data_dir(config.data_dir)
    limits = client_config(config, data).artifact
    data.close()

    assert (limits.http_read_timeout_s, limits.http_max_bytes, limits.git_timeout_s) == (300, 10_000_000, 1800)
    assert (limits.unpacked_bytes_max, limits.file_count_max) == (3 * 1024**3 // 2, 7)
    assert limits.env_names == ("HTTP_PROXY", "NO_PROXY") and not limits.is_inspected
    assert not limits.is_confined and limits.extra_paths == ("d:rx:/opt/git",)
    assert limits.s3_trusted_hosts == ("minio.example:9000",)


def test_the_ids_of_dynamic_users_reach_the_client_and_are_a_range(tmp_path: Path) -> None:
    assert user_range({}) == UserRange(first=80_000, last=89_999)
    assert user_range({"dynamic_user_min": 500, "dynamic_user_max": 500}) == UserRange(first=500, last=500)
    for wrong in ({"dynamic_user_min": 90_000}, {"dynamic_user_min": 0}, {"dynamic_user_max": 2**31}):
        with pytest.raises(Invalid, match="client users: ids from dynamic_user_min"):
            user_range(wrong)


def test_a_path_for_downloads_that_has_no_kind_and_mode_is_refused() -> None:
    with pytest.raises(Invalid, match="'/opt/git' is not KIND:MODE:PATH"):
        artifact_limits({"filesystem_isolation_extra_paths": ["/opt/git"]})


@pytest.mark.parametrize("text", ["", "*.example.com", "https://h/bucket", "ftp://h", "h:port", "h:0", "me@h", "a b"])
def test_a_trusted_host_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"client artifact s3_trusted_hosts: .* is not a host; write a name"):
        artifact_limits({"s3_trusted_hosts": [text]})


@pytest.mark.parametrize("text", ["much", "10XB", "-5MB", "1e9"])
def test_a_size_that_is_none_is_told(text: str) -> None:
    with pytest.raises(Invalid, match="is not a size"):
        bytes_of(text, 1)


@pytest.mark.parametrize(
    "text", ["nomad.example.com", "ftp://x", "https://", "https://x?y=z", "https://a@x", "https://x#y"]
)
def test_an_issuer_is_a_url_that_others_can_use(text: str) -> None:
    with pytest.raises(Invalid, match="oidc_issuer"):
        issuer_of(text)


def test_an_issuer_stays_as_it_is_written() -> None:
    assert (issuer_of(""), issuer_of("https://nomad.example.com/a/")) == ("", "https://nomad.example.com/a/")


@pytest.mark.parametrize(
    ("given", "told"), [({}, False), ({"enable_debug": True}, True), ({"acl": {"enabled": True}}, True)]
)
def test_an_agent_tells_its_machine_where_the_operator_or_policies_decide(given: dict[str, Any], told: bool) -> None:
    config = AgentConfig(name="a", raw=given)
    assert exposes_debug_data(config) is told


def test_the_bounds_of_fuzzy_searches_are_configured() -> None:
    block = {"fuzzy_enabled": False, "limit_results": 50, "min_term_length": 3}
    config = make_config({"server": {"search": block}}, {}, is_dev=True)
    assert agent_info(config, ()).search == SearchSettings(is_enabled=False, matches_max=50, text_min=3)


def test_numbers_beyond_their_bounds_are_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "agent.hcl"
    file.write_text("server {\n  search {\n    limit_results = 1001\n    min_term_length = 0\n  }\n}\n")

    with pytest.raises(Invalid) as caught:
        read_files([str(file)])

    assert str(caught.value).splitlines() == [
        f'{file}:3:5: "server.search.limit_results" must be a number from 1 to 1000, not 1001',
        f'{file}:4:5: "server.search.min_term_length" must be 1 or more, not 0',
    ]


@pytest.mark.parametrize(("limit", "is_right"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_a_number_at_its_bound_is_accepted(limit: int, is_right: bool) -> None:
    problems = check({"server": {"search": {"limit_results": limit, "min_term_length": 1}}}, ROOT)[1]
    assert (problems == []) is is_right
