"""The address and interface that allocations of this node are reached at. Blocking; call in a thread.

The interface of the default route is taken, else any that is up and has an address, else the loopback: a host without
a route must still start.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import NamedTuple

import psutil

from yurt.sdk.errors import Invalid

ROUTES = Path("/proc/net/route")
DEFAULT_SPEED_MBITS = 1000
ROUTE_UP = 1


class NetworkFacts(NamedTuple):
    """An interface, its first address, and its speed in Mbit/s."""

    interface: str
    ip: str
    speed_mbits: int


def default_interface() -> str:
    """The interface of the default route, or nothing."""
    try:
        lines = ROUTES.read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[1] == "00000000" and int(fields[3], 16) & ROUTE_UP:
            return fields[0]
    return ""


def _addresses() -> dict[str, list[str]]:
    """IP addresses by interface, IPv4 first, without link-local ones."""
    found: dict[str, list[str]] = {}
    for name, entries in psutil.net_if_addrs().items():
        texts = [
            entry.address.partition("%")[0] for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        usable = [text for text in texts if not ipaddress.ip_address(text).is_link_local]
        if usable:
            found[name] = sorted(usable, key=lambda text: ":" in text)
    return found


def network_facts(wanted: str, speed_override: int) -> NetworkFacts | None:
    """The node's network; raises Invalid when the wanted interface does not exist."""
    addresses = _addresses()
    if wanted and wanted not in addresses:
        known = ", ".join(sorted(addresses)) or "none"
        raise Invalid(f"network_interface {wanted!r} does not exist or has no address; interfaces here: {known}")
    interface = wanted or _choose(addresses)
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
