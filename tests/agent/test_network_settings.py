"""The keys of the client block that are about group networks."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.agent.component_configs import network_settings
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.errors import Invalid


def test_without_keys_the_settings_are_nomads() -> None:
    assert network_settings({}) == NetworkSettings()


def test_every_key_has_its_effect() -> None:
    given = {
        "cni_path": "/a:/b:",
        "cni_config_dir": "/c",
        "bridge_network_name": "br",
        "bridge_network_subnet": "10.1.0.0/16",
        "bridge_network_subnet_ipv6": "fd00:1::/64",
        "bridge_network_hairpin_mode": True,
        "bind_wildcard_default_host_network": False,
        "preferred_address_family": "ipv6",
    }
    assert network_settings(given) == NetworkSettings(
        cni_paths=("/a", "/b"),
        cni_config_dir="/c",
        bridge_name="br",
        bridge_subnet="10.1.0.0/16",
        bridge_subnet_ipv6="fd00:1::/64",
        bridge_hairpin_mode=True,
        binds_wildcard=False,
        preferred_family="ipv6",
    )


def test_ports_answer_on_every_address_only_where_no_host_network_is_named() -> None:
    assert not network_settings({"host_network": {"side": {"interface": "lo"}}}).binds_wildcard


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"preferred_address_family": "ipv5"}, 'must be "ipv4" or "ipv6"'),
        ({"bridge_network_subnet": "10.0.0.1/8"}, "client bridge_network_subnet"),
        ({"bridge_network_name": "a/b"}, "client bridge_network_name"),
    ],
)
def test_what_no_network_can_be_made_of_stops_the_start(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        network_settings(given)
