"""Builds the CNI configuration of `mode = "bridge"` from the agent's settings; pure.

The names are Nomad's, so that an operator's rules in the chain NOMAD-ADMIN, which packets to allocations pass first,
go on working. Addresses are booked below /run: a reboot, which takes all namespaces, takes the bookings as well.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from yurt.client.networks.cni import NetworkConfig
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.errors import Invalid

VERSION = "0.4.0"
ADMIN_CHAIN = "NOMAD-ADMIN"
BOOKINGS = "/run/yurt/cni"
BRIDGE = "bridge"
IPTABLES, NFTABLES = "iptables", "nftables"
NAME_LENGTH_MAX = 15


def bridge_network(settings: NetworkSettings, *, backend: str = IPTABLES) -> NetworkConfig:
    """The CNI configuration; with `nftables`, port mapping and masquerading work without iptables."""
    subnets = [text for text in (settings.bridge_subnet, settings.bridge_subnet_ipv6) if text]
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": settings.bridge_name,
        "ipMasq": True,
        "isGateway": True,
        "forceAddress": True,
        "hairpinMode": settings.bridge_hairpin_mode,
        "ipam": {
            "type": "host-local",
            "dataDir": BOOKINGS,
            "ranges": [[{"subnet": subnet}] for subnet in subnets],
            "routes": [{"dst": "::/0" if ":" in subnet else "0.0.0.0/0"} for subnet in subnets],
        },
    }
    portmap: dict[str, Any] = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    plugins: tuple[dict[str, Any], ...]
    if backend == NFTABLES:
        plugins = (bridge | {"ipMasqBackend": NFTABLES}, portmap | {"backend": NFTABLES})
    else:
        firewall = {"type": "firewall", "backend": IPTABLES, "iptablesAdminChainName": ADMIN_CHAIN}
        plugins = (bridge, firewall, portmap)
    is_checked = backend != NFTABLES  # with it, portmap 1.6 finds rules missing that are there
    return NetworkConfig(name=settings.bridge_name, version=VERSION, plugins=plugins, is_checked=is_checked)


def check_settings(settings: NetworkSettings) -> None:
    """Check the bridge settings; raises Invalid."""
    if not 0 < len(settings.bridge_name) <= NAME_LENGTH_MAX or "/" in settings.bridge_name:
        raise Invalid(
            f'client bridge_network_name: "{settings.bridge_name}" is not a valid interface name; use '
            f"1 to {NAME_LENGTH_MAX} characters"
        )
    requested = (("bridge_network_subnet", settings.bridge_subnet, 4),) if settings.bridge_subnet else ()
    if settings.bridge_subnet_ipv6:
        requested = (*requested, ("bridge_network_subnet_ipv6", settings.bridge_subnet_ipv6, 6))
    if not requested:
        raise Invalid("client bridge_network_subnet: the bridge needs a network such as 172.26.64.0/20")
    for key, text, version in requested:
        try:
            subnet = ip_network(text)
        except ValueError as error:
            raise Invalid(f"client {key}: {error}; write a network such as 172.26.64.0/20 or fd00:1::/64") from None
        if subnet.version != version:
            raise Invalid(f"client {key}: {text} is not a network of IPv{version}")
