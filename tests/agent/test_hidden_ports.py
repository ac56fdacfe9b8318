"""A server with access control and without TLS: on loopback where it stands alone, refused where it names others."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.agent.config import AgentConfig, make_config
from yurt.agent.config_check import check
from yurt.agent.config_keys import ROOT
from yurt.cli.commands.agent import COMMANDS, flag_data
from yurt.cli.declaration import Invocation
from yurt.cli.flags import parse
from yurt.sdk.errors import Invalid


def config_of(data: dict[str, Any], *, is_dev: bool = False) -> AgentConfig:
    shaped, problems = check(data, ROOT)
    assert problems == []
    return make_config(shaped, {}, is_dev=is_dev)


def flags_of(*words: str) -> dict[str, Any]:
    """The configuration data of flags of `yurt agent`."""
    (command,) = COMMANDS
    flags, arguments = parse(words, command.all_flags)
    shaped, problems = check(flag_data(Invocation(command, flags, arguments)), ROOT)
    assert problems == []
    return shaped


ALONE = {"server": {"enabled": True, "bootstrap_expect": 1}, "data_dir": "/d", "acl": {"enabled": True}}


def test_a_server_alone_with_access_control_and_without_tls_listens_for_agents_on_loopback() -> None:
    made = config_of(ALONE)
    assert (made.rpc_address, made.serf_address, made.http_addresses) == ("127.0.0.1", "127.0.0.1", ("0.0.0.0",))
    assert (made.advertise_rpc, made.advertise_serf) == ("127.0.0.1:4647", "127.0.0.1:4648")
    assert made.hides_rpc


@pytest.mark.parametrize(
    "more",
    [
        {"acl": {"enabled": False}},
        {"acl": {"enabled": True, "allow_rpc_without_tls": True}},
        {"tls": {"rpc": True}},
    ],
)
def test_a_server_that_is_safe_or_allowed_listens_for_agents_on_all_addresses(more: dict[str, Any]) -> None:
    made = config_of({**ALONE, **more})
    assert (made.rpc_address, made.serf_address, made.hides_rpc) == ("0.0.0.0", "0.0.0.0", False)


def alone(**server: Any) -> dict[str, Any]:
    return {"server": {"enabled": True, "bootstrap_expect": 1, **server}}


def with_client(**client: Any) -> dict[str, Any]:
    return {"client": {"enabled": True, **client}}


FAR = "10.0.0.6"


@pytest.mark.parametrize(
    "more",
    [
        {"bind_addr": "0.0.0.0"},
        {"addresses": {"rpc": "0.0.0.0"}},
        {"addresses": {"serf": "0.0.0.0"}},
        {"advertise": {"rpc": "10.0.0.5"}},
        {"advertise": {"serf": "10.0.0.5:4648"}},
        alone(bootstrap_expect=3),
        {"server": {"enabled": True, "start_join": [FAR]}},
        alone(start_join=[FAR]),
        alone(retry_join=[FAR]),
        alone(server_join={"start_join": [FAR]}),
        alone(server_join={"retry_join": [FAR]}),
        alone(rejoin_after_leave=True),
        alone(authoritative_region="eu"),
        {"region": "eu", **alone(authoritative_region="global")},
        {"acl": {"enabled": True, "replication_token": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"}},
        {"etcd": {"endpoints": ["http://10.0.0.7:2379"]}},
        with_client(servers=[FAR]),
        with_client(servers=["127.0.0.1", "srv1:4647"]),
        with_client(servers=["[2001:db8::1]:4647"]),
        with_client(server_join={"start_join": [FAR]}),
        with_client(server_join={"retry_join": [FAR]}),
    ],
)
def test_a_server_that_names_addresses_or_servers_is_refused_rather_than_hidden(more: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"other hosts can reach (RPC|Serf)"):
        config_of({**ALONE, **more})


@pytest.mark.parametrize(
    "flags",
    [
        ("-join", FAR), ("-retry-join", FAR), ("-rejoin",), ("-bootstrap-expect", "3"), ("-bind", "0.0.0.0"),
        ("-client", "-servers", f"{FAR}:4647"),
        ("-acl-replication-token", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"),
    ],
)  # fmt: skip
def test_a_server_whose_flags_name_addresses_or_servers_is_refused_rather_than_hidden(flags: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="other hosts can reach RPC"):
        make_config(ALONE, flags_of("-server", *flags), is_dev=False)
    assert make_config(ALONE, flags_of("-server", "-bootstrap-expect", "1"), is_dev=False).hides_rpc


@pytest.mark.parametrize(
    "more",
    [
        alone(authoritative_region="global"),
        {"addresses": {"http": "10.0.0.5"}},
        {"advertise": {"http": "10.0.0.5"}},
        {"client": {"enabled": False, "servers": [FAR]}},
        with_client(servers=["127.0.0.1:4647", "localhost", "[::1]:4647", "::1"]),
        with_client(),
    ],
)
def test_a_server_that_names_only_this_machine_listens_for_agents_on_loopback(more: dict[str, Any]) -> None:
    assert config_of({**ALONE, **more}).hides_rpc
