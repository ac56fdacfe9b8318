"""What plugins are told, and what is read from their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.client.networks import cni
from yurt.client.networks.bridge import NFTABLES, bridge_network, check_settings
from yurt.client.networks.cni import Attachment, NetworkConfig, read_config, status_of
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.errors import Invalid
from yurt.structs.network import PortMapping

ATTACHMENT = Attachment(
    container_id="a", namespace="/run/netns/a", args={"IgnoreUnknown": "1", "K": "v"},
    ports=(PortMapping(label="web", value=20000, to=80, host_ip="192.0.2.1"), PortMapping(label="raw", value=20001)),
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def config_of(**changes: Any) -> NetworkConfig:
    return read_config(json.dumps({"name": "n", "plugins": [{"type": "p"}], **changes}).encode(), "x.conflist")


def test_a_file_of_one_plugin_is_a_list_of_one():
    config = read_config(b'{"name": "n", "type": "macvlan", "ipam": {"type": "dhcp"}}', "x.conf")
    assert (config.name, config.version, config.programs) == ("n", "0.3.1", ("macvlan", "dhcp"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "x.conflist is not JSON"),
        (b"[]", 'an object with a "name"'),
        (b'{"name": ""}', 'an object with a "name"'),
        (b'{"name": "n", "plugins": []}', '"plugins" must be a list'),
        (b'{"name": "n", "type": "../sh"}', '"plugins" must be a list'),
        (b'{"name": "n", "cniVersion": "9.0.0", "type": "p"}', 'cniVersion "9.0.0" is not one of'),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(text: bytes, reason: str):
    with pytest.raises(Invalid, match=reason):
        read_config(text, "x.conflist")


PARTS = st.dictionaries(st.sampled_from(["type", "ipam", "capabilities", "runtimeConfig"]), JSON_VALUES)
FILES = st.fixed_dictionaries({"name": st.just("n")}, optional={"plugins": st.lists(PARTS), "cniVersion": JSON_VALUES})


@given(JSON_VALUES | FILES)
def test_no_file_does_more_than_to_be_refused(value: Any):
    try:
        found = read_config(json.dumps(value).encode(), "x.conf")
    except Invalid:
        return
    assert all("/" not in program for program in found.programs)
    assert all(cni.request(found, plugin, ATTACHMENT, None) for plugin in found.plugins)


def test_a_plugin_is_told_its_part_the_network_and_what_it_is_capable_of():
    config = config_of(cniVersion="1.0.0", plugins=[{"type": "p", "mtu": 1400, "capabilities": {"portMappings": True}}])
    asked = json.loads(cni.request(config, config.plugins[0], ATTACHMENT, {"ips": []}))
    assert asked["cniVersion"] == "1.0.0" and asked["name"] == "n" and asked["mtu"] == 1400
    assert {"hostPort": 20000, "containerPort": 80, "protocol": "udp"} in asked["runtimeConfig"]["portMappings"]
    assert {"hostPort": 20001, "containerPort": 20001, "protocol": "tcp"} in asked["runtimeConfig"]["portMappings"]


def test_a_plugin_without_the_capability_is_told_no_ports():
    config = config_of()
    assert "runtimeConfig" not in json.loads(cni.request(config, config.plugins[0], ATTACHMENT, None))


def test_where_ports_are_bound_to_their_address_it_is_told():
    narrow = Attachment(container_id="a", namespace="n", ports=ATTACHMENT.ports, binds_wildcard=False)
    told = {entry["hostPort"]: entry.get("hostIP") for entry in cni.port_mappings(narrow)}
    assert told == {20000: "192.0.2.1", 20001: None}


def test_arguments_are_told_by_variable():
    told = cni.environment("ADD", ATTACHMENT, ["/a", "/b"])
    assert told["CNI_ARGS"] == "IgnoreUnknown=1;K=v" and told["CNI_PATH"] == "/a:/b" and told["CNI_IFNAME"] == "eth0"


@pytest.mark.parametrize("args", [{"a=b": "c"}, {"a": "b;C=d"}, {"": "x"}, {"a": "\0"}])
def test_an_argument_that_would_become_another_is_refused(args: dict[str, str]):
    with pytest.raises(Invalid, match="cni args"):
        cni.environment("ADD", Attachment(container_id="a", namespace="n", args=args), [])


def test_the_address_is_that_of_the_first_interface_inside():
    status = status_of(
        {
            "interfaces": [{"name": "veth"}, {"name": "eth0", "sandbox": "/x"}, {"name": "eth1", "sandbox": "/x"}],
            "ips": [
                {"address": "10.0.0.1/24", "interface": 0},
                {"address": "fd00::2/64", "interface": 1},
                {"address": "10.0.0.2/24", "interface": 1},
                {"address": "10.0.1.2/24", "interface": 2},
            ],
            "dns": {"nameservers": ["10.0.0.53"], "search": ["x.example"], "options": ["ndots:1"]},
        }
    )
    assert (status.interface_name, status.address, status.address_ipv6) == ("eth0", "10.0.0.2", "fd00::2")
    assert status.dns is not None and status.dns.servers == ("10.0.0.53",)


def test_an_allocation_with_ipv6_alone_has_that_address():
    status = status_of({"ips": [{"address": "fd00::2/64"}]})
    assert (status.address, status.address_ipv6, status.interface_name) == ("fd00::2", "fd00::2", "eth0")


def test_an_address_that_is_none_is_refused():
    with pytest.raises(Invalid, match="'nowhere', which is not an IP address"):
        status_of({"ips": [{"address": "nowhere"}]})


@given(st.dictionaries(st.sampled_from(["interfaces", "ips", "dns", "routes"]), JSON_VALUES))
def test_no_answer_does_more_than_to_be_refused(answer: dict[str, Any]):
    try:
        assert status_of(answer).interface_name
    except Invalid as error:
        assert str(error)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (b'{"code": 11, "msg": "busy", "details": "try later"}', "busy: try later"),
        (b"", "it gave no reason"),
        (b"panic", "panic"),
    ],
)
def test_the_reason_of_a_failure_is_what_the_plugin_says(output: bytes, told: str):
    assert cni.failure_text(output, b"") == told


def test_the_bridge_has_nomads_names_and_the_operators_networks():
    settings = NetworkSettings(bridge_name="br", bridge_subnet_ipv6="fd00:1::/64", bridge_hairpin_mode=True)
    bridge, firewall, portmap = bridge_network(settings).plugins
    assert bridge["bridge"] == "br" and bridge["hairpinMode"] is True
    assert [each[0]["subnet"] for each in bridge["ipam"]["ranges"]] == ["172.26.64.0/20", "fd00:1::/64"]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    assert firewall["iptablesAdminChainName"] == "NOMAD-ADMIN" and portmap["capabilities"] == {"portMappings": True}


def test_without_iptables_the_bridge_uses_nftables_throughout():
    told = json.dumps(bridge_network(NetworkSettings(), backend=NFTABLES).plugins)
    assert "iptables" not in told and told.count("nftables") == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bridge_name": "a" * 16}, "not a valid interface name"),
        ({"bridge_subnet": "10.0.0.1/8"}, "has host bits set"),
        ({"bridge_subnet": "fd00::/64"}, "not a network of IPv4"),
        ({"bridge_subnet_ipv6": "10.0.0.0/8"}, "not a network of IPv6"),
        ({"bridge_subnet": ""}, "needs a network"),
    ],
)
def test_settings_that_make_no_bridge_are_refused(changes: dict[str, Any], reason: str):
    with pytest.raises(Invalid, match=reason):
        check_settings(NetworkSettings(**changes))
