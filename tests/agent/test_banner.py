"""The first screen: the command that works here, the level that the terminal gets, every driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.agent.banner import (
    DriverLine,
    access_lines,
    command_name,
    configuration_lines,
    driver_lines,
    exposure_lines,
    hidden_lines,
    next_lines,
    tls_lines,
)
from yurt.agent.config import make_config
from yurt.agent.tls import TlsSettings


def test_the_suggested_command_is_one_that_can_be_typed(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    environ = {"PATH": str(tools)}
    assert command_name(tmp_path, environ) == "yurt"

    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "core" / "src" / "yurt").mkdir(parents=True)
    assert command_name(tmp_path, environ) == "yurt"
    own = tmp_path / ".venv" / "bin" / "yurt"
    own.parent.mkdir(parents=True)
    own.touch()
    assert command_name(tmp_path, environ) == ".venv/bin/yurt"
    assert command_name(tmp_path, {**environ, "VIRTUAL_ENV": str(tmp_path / ".venv")}) == "yurt"

    (tools / "uv").touch(mode=0o755)
    assert command_name(tmp_path, environ) == "uv run yurt"


def test_the_log_level_is_the_one_of_the_terminal() -> None:
    for given, shown in (({}, "INFO"), ({"log_level": "TRACE"}, "TRACE"), ({"log_level": "DEBUG"}, "DEBUG")):
        config = make_config({}, given, is_dev=True)
        lines = configuration_lines(config, version="1", data_dir="/d", node_id="n")
        assert f"Log Level: {shown}" in "\n".join(lines)


def test_who_starts_a_new_cluster_learns_how_to_make_the_first_token() -> None:
    assert "yurt acl bootstrap" in "\n".join(access_lines())


@pytest.mark.parametrize(
    ("acl", "tls", "danger"),
    [
        ({}, TlsSettings(), "Anyone who can reach these ports can run jobs"),
        ({"enabled": True, "allow_rpc_without_tls": True}, TlsSettings(), "can act as a server or a node; anyone on"),
        ({"enabled": True, "allow_rpc_without_tls": True}, TlsSettings(rpc=True),
         "    Anyone on the network path can read or alter traffic, tokens included.\n"),
    ],
)  # fmt: skip
def test_the_danger_of_open_ports_is_the_one_that_is_left(acl: dict[str, Any], tls: TlsSettings, danger: str) -> None:
    config = make_config({}, SERVER | {"acl": acl}, is_dev=False)
    assert danger in "\n".join(exposure_lines(config, tls))


def test_a_server_that_only_this_machine_reaches_says_why_and_what_lets_others_in() -> None:
    alone = {"server": {"enabled": True}, "data_dir": "/d", "acl": {"enabled": True}}
    text = "\n".join(hidden_lines(make_config(alone, {}, is_dev=False)))
    assert "only this machine reaches RPC 127.0.0.1:4647 and Serf 127.0.0.1:4648" in text
    assert "Any process on this machine, of any user, can still act as a server or a node" in text
    assert "tls { rpc = true }" in text and "acl { allow_rpc_without_tls = true }" in text
    assert hidden_lines(make_config({**alone, "tls": {"rpc": True}}, {}, is_dev=False)) == []


SERVER = {"server": {"enabled": True, "bootstrap_expect": 1}, "data_dir": "/d", "bind_addr": "10.0.0.5"}


@pytest.mark.parametrize(
    ("given", "tls", "ports", "switches"),
    [
        (SERVER, TlsSettings(), "HTTP 10.0.0.5:4646, RPC 10.0.0.5:4647, Serf 10.0.0.5:4648",
         "http = true and rpc = true"),
        (SERVER | {"bind_addr": "::"}, TlsSettings(http=True), "RPC [::]:4647, Serf [::]:4648", "tls { rpc = true }"),
        (SERVER | {"bind_addr": "127.0.0.1", "addresses": {"http": "127.0.0.1 0.0.0.0"}}, TlsSettings(),
         "      HTTP 0.0.0.0:4646\n", "tls { http = true }"),
    ],
)  # fmt: skip
def test_a_server_that_others_reach_without_tls_says_so(
    given: dict[str, Any], tls: TlsSettings, ports: str, switches: str
) -> None:
    text = "\n".join(exposure_lines(make_config(given, {}, is_dev=False), tls))
    assert "WARNING" in text and ports in text and switches in text


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_a_server_that_nobody_else_reaches_or_that_has_tls_does_not(bind: str) -> None:
    assert exposure_lines(make_config(SERVER | {"bind_addr": bind}, {}, is_dev=False), TlsSettings()) == []
    assert exposure_lines(make_config(SERVER, {}, is_dev=False), TlsSettings(http=True, rpc=True)) == []
    assert exposure_lines(make_config({}, {}, is_dev=True), TlsSettings()) == []


def test_a_driver_whose_plugin_failed_is_listed_with_the_reason() -> None:
    lines = driver_lines(
        [
            DriverLine(name="raw_exec", is_healthy=False, reason='unknown option "enabeld"', is_loaded=False),
            DriverLine(name="exec", is_healthy=True),
        ]
    )
    assert lines[1:] == ["      exec      healthy", '      raw_exec  failed: unknown option "enabeld"']


def test_the_first_screen_names_what_commands_need_for_tls() -> None:
    assert tls_lines(TlsSettings(rpc=True, ca_file="ca.pem"), "global") == []
    _, authority = tls_lines(TlsSettings(http=True, ca_file="/etc/yurt/ca.pem"), "global")
    assert authority.strip() == "export NOMAD_CACERT=/etc/yurt/ca.pem"
    *_, own = tls_lines(TlsSettings(http=True, ca_file="ca.pem", verify_https_client=True), "eu")
    assert own.strip() == "export NOMAD_CLIENT_CERT=eu-cli-nomad.pem NOMAD_CLIENT_KEY=eu-cli-nomad-key.pem"


def test_an_agent_that_is_not_ready_does_not_say_that_it_is() -> None:
    address = "http://10.0.0.1:4646"
    assert next_lines(address, "yurt")[0].startswith(f"==> Yurt agent started and ready at {address}")
    lines = next_lines(address, "yurt", ["the server waits for its cluster to form", "the client waits for the server"])
    assert lines[0] == f"==> Yurt agent started at {address}, but it is not ready yet:"
    assert lines[1].strip() == "the server waits for its cluster to form"
    assert "job init" not in "".join(lines)
