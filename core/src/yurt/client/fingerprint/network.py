"""Detects the address and interface under which allocations of this node are reached. Blocking.

The interface of the default route is taken, else any that is up and has an address, else the loopback: a host without
a route must still start.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.structs.node import HostNetworkInfo, NodeNetworkAddress, NodeNetworkResource

ROUTES = Path("/proc/net/route")
DEFAULT_SPEED_MBITS = 1000
ROUTE_UP = 1
DEFAULT_ALIAS = "default"
HOST_MODE = "host"

log = logging.getLogger(__name__)


class NetworkFacts(msgspec.Struct, frozen=True):
    """An interface, its first address, and its speed in Mbit/s."""

    interface: str
    ip: str
    speed_mbits: int


def default_interface() -> str:
    """The interface of the default route, or ""."""
    try:
        lines = ROUTES.read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[1] == "00000000" and int(fields[3], 16) & ROUTE_UP:
            return fields[0]
    return ""


def _addresses(family: str = "") -> dict[str, list[str]]:
    """IP addresses by interface, those of the preferred family first (IPv4 otherwise), without link-local ones."""
    is_ipv6_first = family == "ipv6"
    found: dict[str, list[str]] = {}
    for name, entries in psutil.net_if_addrs().items():
        texts = [
            entry.address.partition("%")[0] for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        usable = [text for text in texts if not ipaddress.ip_address(text).is_link_local]
        if usable:
            found[name] = sorted(usable, key=lambda text: (":" in text) != is_ipv6_first)
    return found


def host_networks(networks: Mapping[str, HostNetworkInfo], *, family: str = "") -> dict[str, HostNetworkInfo]:
    """The host networks in which this machine has an address, with that address as CIDR."""
    found: dict[str, HostNetworkInfo] = {}
    for name, network in networks.items():
        address = _address_in(network, name, _addresses(family))
        if address is None:
            log.warning('host_network "%s" is not offered: no address of this machine is in it', name)
        else:
            found[name] = replace(network, name=name, interface=address[0], cidr=address[1])
    return found


def _address_in(network: HostNetworkInfo, name: str, addresses: dict[str, list[str]]) -> tuple[str, str] | None:
    """Interface and CIDR address of a network given by range, interface, or both."""
    try:
        cidr = ipaddress.ip_network(network.cidr, strict=False) if network.cidr else None
    except ValueError as error:
        raise Invalid(f'client host_network "{name}": cidr: {error}') from None
    if cidr is None and not network.interface:
        raise Invalid(f'client host_network "{name}" needs a cidr or an interface')
    for interface, texts in addresses.items():
        if network.interface and interface != network.interface:
            continue
        for text in texts:
            if cidr is None or ipaddress.ip_address(text) in cidr:
                return interface, f"{text}/{cidr.prefixlen if cidr is not None else (128 if ':' in text else 32)}"
    return None


def node_networks(
    facts: NetworkFacts | None, named: Mapping[str, HostNetworkInfo], *, family: str = ""
) -> tuple[NodeNetworkResource, ...]:
    """The named addresses: the first of each family on the default interface, and those of host networks."""
    names: dict[str, list[NodeNetworkAddress]] = {}
    if facts is not None:
        firsts = {":" in text: text for text in reversed(_addresses(family).get(facts.interface, ()))}
        ordered = sorted(firsts.values(), key=lambda text: text != facts.ip)
        names[facts.interface] = [_named(DEFAULT_ALIAS, text) for text in ordered]
    for name, network in named.items():
        address = _named(name, network.cidr.partition("/")[0], network.reserved_ports)
        names.setdefault(network.interface, []).append(address)
    speeds = {} if facts is None else {facts.interface: facts.speed_mbits}
    return tuple(
        NodeNetworkResource(
            mode=HOST_MODE,
            device=interface,
            mac_address=_mac_address(interface),
            speed=speeds.get(interface) or _speed(interface),
            addresses=tuple(addresses),
        )
        for interface, addresses in names.items()
    )


def _named(alias: str, text: str, reserved_ports: str = "") -> NodeNetworkAddress:
    kind = "ipv6" if ":" in text else "ipv4"
    return NodeNetworkAddress(family=kind, alias=alias, address=text, reserved_ports=reserved_ports)


def _mac_address(interface: str) -> str:
    entries = psutil.net_if_addrs().get(interface, ())
    return next((entry.address for entry in entries if entry.family == psutil.AF_LINK), "")


def network_facts(requested: str, speed_override: int, *, family: str = "") -> NetworkFacts | None:
    """The node's network; raises Invalid when the configured interface does not exist."""
    addresses = _addresses(family)
    if requested and requested not in addresses:
        interfaces = ", ".join(sorted(addresses)) or "none"
        raise Invalid(
            f"network_interface {requested!r} does not exist or has no address; interfaces here: {interfaces}"
        )
    interface = requested or _choose(addresses)
    if not interface:
        return None
    return NetworkFacts(interface, addresses[interface][0], speed_override or _speed(interface))


def _choose(addresses: dict[str, list[str]]) -> str:
    by_route = default_interface()
    if by_route in addresses:
        return by_route
    stats = psutil.net_if_stats()
    up = [name for name in sorted(addresses) if name in stats and stats[name].isup]
    outside = [name for name in up if not ipaddress.ip_address(addresses[name][0]).is_loopback]
    return next(iter((*outside, *up, *sorted(addresses))), "")


def _speed(interface: str) -> int:
    stats = psutil.net_if_stats().get(interface)
    speed = int(stats.speed) if stats is not None else 0
    return speed if 0 < speed < 65535 else DEFAULT_SPEED_MBITS
