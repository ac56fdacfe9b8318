"""Which networks a machine offers, and why not others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yurt.client.fingerprint.network import NetworkFacts, host_networks, node_networks
from yurt.client.networks import detection
from yurt.client.networks.description import with_networks
from yurt.client.networks.detection import Offered, find_offered, folders_mark, packet_filter, reported_version
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.errors import Invalid
from yurt.structs.node import NETWORK_PROBLEM, HostNetworkInfo
from yurt.testing import factories

from .conftest import AS_ROOT, Plugins


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("CNI bridge plugin v1.5.1\nCNI protocol versions supported: 0.1.0, 1.0.0", "v1.5.1"),
        ("CNI bridge plugin version unknown\nCNI protocol versions supported: 0.1.0, 0.4.0, 1.0.0\n", "v1.0.0"),
        ("usage: something else", ""),
    ],
)
def test_a_plugin_tells_its_version_or_else_what_it_speaks(text: str, version: str):
    assert reported_version(text) == version


def test_iptables_is_used_where_it_is_and_nftables_from_the_plugins_that_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(detection, "SBIN", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packet_filter(supports_nftables=True) == ""
    for program in ("nft", "iptables"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
        if program == "nft":
            assert packet_filter(supports_nftables=True) == "nftables"
            assert packet_filter(supports_nftables=False) == ""
    assert packet_filter(supports_nftables=True) == "iptables"


@AS_ROOT
async def test_a_network_whose_plugin_others_can_exchange_is_not_offered(tmp_path: Path, plugins: Plugins):
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "a.conflist").write_text(json.dumps({"name": "good", "plugins": [{"type": "first"}]}))
    (plugins.folder / "first").chmod(0o777)
    found = await find_offered(NetworkSettings(cni_paths=(str(plugins.folder),), cni_config_dir=str(folder)))
    assert found.networks == {}
    assert "refused" in found.why_not("cni/good") and "chmod go-w" in found.why_not("cni/good")


@AS_ROOT
async def test_configurations_are_offered_by_name_and_broken_ones_with_their_reason(tmp_path: Path, plugins: Plugins):
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "a.conflist").write_text(json.dumps({"name": "good", "plugins": [{"type": "first"}]}))
    (folder / "b.conf").write_text(json.dumps({"name": "lacking", "type": "third"}))
    (folder / "broken.json").write_text("{")
    (folder / "README").write_text("not read")
    found = await find_offered(NetworkSettings(cni_paths=(str(plugins.folder),), cni_config_dir=str(folder)))
    assert list(found.networks) == ["cni/good"]
    assert "CNI plugins third are in none of the folders" in found.why_not("cni/lacking")
    assert "broken.json is not JSON" in found.why_not("cni/broken")
    assert "bridge, firewall, portmap, host-local" in found.why_not("bridge")
    assert "there are: cni/good" in found.why_not("cni/other")
    assert found.attributes["plugins.cni.version.first"] == "v1.2.3"


async def test_a_machine_that_makes_no_namespaces_says_so_for_every_network(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(detection, "obstacle", lambda: "unshare: Operation not permitted")
    found = await find_offered(NetworkSettings())
    assert not found.networks and "run the agent as root" in found.why_not("bridge")


def test_a_change_of_a_folder_is_seen(tmp_path: Path, plugins: Plugins):
    settings = NetworkSettings(cni_paths=(str(plugins.folder),), cni_config_dir=str(tmp_path / "absent"))
    before = folders_mark(settings)
    assert before == folders_mark(settings)
    plugins.make("third")
    assert before != folders_mark(settings)


def test_a_node_forgets_the_networks_that_are_gone():
    node, settings = factories.node(), NetworkSettings()
    config = detection.bridge_network(settings)
    with_bridge = with_networks(
        node, Offered(networks={"bridge": config}, attributes={"plugins.cni.version.x": "v1"}), settings
    )
    assert [each.mode for each in with_bridge.node_resources.networks][-1] == "bridge"
    without = with_networks(with_bridge, Offered(problems=(("bridge", "gone"),)), settings)
    assert without.node_resources.networks == node.node_resources.networks
    assert without.attributes == {**node.attributes, f"{NETWORK_PROBLEM}bridge": "gone"}


def test_a_host_network_is_told_by_the_address_of_this_machine_in_it():
    expected = {
        "loop": HostNetworkInfo(cidr="127.0.0.0/8", reserved_ports="22"),
        "by-name": HostNetworkInfo(interface="lo"),
        "absent": HostNetworkInfo(cidr="198.51.100.0/24"),
    }
    found = host_networks(expected)
    assert {name: network.cidr for name, network in found.items()} == {"loop": "127.0.0.1/8", "by-name": "127.0.0.1/32"}
    assert (found["loop"].interface, found["loop"].reserved_ports) == ("lo", "22")


def test_addresses_of_a_node_are_told_by_the_names_of_their_networks():
    named = host_networks({"loop": HostNetworkInfo(cidr="127.0.0.0/8", reserved_ports="22")})
    (found,) = node_networks(NetworkFacts("lo", "127.0.0.1", 1000), named)
    assert (found.mode, found.device, found.speed) == ("host", "lo", 1000)
    assert found.mac_address == "00:00:00:00:00:00"
    told = [(each.alias, each.family, each.address, each.reserved_ports) for each in found.addresses]
    assert told[0] == ("default", "ipv4", "127.0.0.1", "") and told[-1] == ("loop", "ipv4", "127.0.0.1", "22")


@pytest.mark.parametrize(("network", "reason"), [({"cidr": "x"}, "cidr"), ({}, "needs a cidr or an interface")])
def test_a_host_network_that_means_nothing_is_refused(network: dict[str, str], reason: str):
    with pytest.raises(Invalid, match=reason):
        host_networks({"bad": HostNetworkInfo(**network)})
