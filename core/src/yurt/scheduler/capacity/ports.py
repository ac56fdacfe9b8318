"""Ports: chooses addresses, checks static ports, assigns dynamic ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import replace

from yurt.scheduler.ids import step
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource, Port, PortMapping
from yurt.structs.node import HostNetworkInfo, Node

TRIES = 20
PORT_MAX = 65535
RESERVED_CACHE = 4096


class PortGrant(msgspec.Struct, frozen=True):
    """Granted networks by task ("" for the group's), and the group's port mappings."""

    shared: tuple[NetworkResource, ...]
    ports: tuple[PortMapping, ...]
    tasks: Mapping[str, tuple[NetworkResource, ...]]


class _Offer:
    """A node's ports during assignment."""

    def __init__(self, node: Node, used: Mapping[str, int], salt: int) -> None:
        self.node = node
        self.salt = salt
        self.used: dict[str, int] = dict(used)
        self.default = _default_network(node)
        self.reserved = reserved_bits(node.reserved_resources.networks.reserved_host_ports)

    def address(self, alias: str) -> str | None:
        if alias in ("", "default"):
            return None if self.default is None else _ip_of(self.default)
        network = self.node.host_networks.get(alias)
        return None if network is None else _address_of(network)

    def bits(self, address: str) -> int:
        """The unavailable ports of an address: used, or reserved on the node or the network."""
        reserved = self.reserved
        for network in self.node.host_networks.values():
            if network.reserved_ports and _address_of(network) == address:
                reserved |= reserved_bits(network.reserved_ports)
        return self.used.get(address, 0) | reserved

    def take(self, address: str, port: int) -> None:
        self.used[address] = self.used.get(address, 0) | 1 << port

    def dynamic(self, address: str) -> int | None:
        """A free port of the node's dynamic range: a few random attempts, then the first free one."""
        low = max(1, self.node.node_resources.min_dynamic_port)
        high = min(PORT_MAX, self.node.node_resources.max_dynamic_port)
        if high < low:
            return None
        bits = self.bits(address)
        for _ in range(TRIES):
            self.salt = step(self.salt)
            port = low + self.salt % (high - low + 1)
            if not bits >> port & 1:
                return port
        # Random tries keep concurrent plans from taking the same port; a nearly full range is searched.
        free = ~(bits >> low) & ((1 << (high - low + 1)) - 1)
        if not free:
            return None
        port = low + (free & -free).bit_length() - 1
        assert low <= port <= high and not bits >> port & 1, (low, port, high)
        return port


def has_ports(group: TaskGroup) -> bool:
    """Whether a group requests networks."""
    return bool(group.networks) or any(task.resources.networks for task in group.tasks)


def grant_ports(node: Node, used: Mapping[str, int], group: TaskGroup, *, salt: int) -> PortGrant | str:
    """The group's ports on a node, or the reason why they are unavailable."""
    offer = _Offer(node, used, salt)
    shared, mappings = [], []
    for network in group.networks:
        granted = _grant_network(offer, network)
        if isinstance(granted, str):
            return granted
        shared.append(granted[0])
        mappings.extend(granted[1])
    tasks: dict[str, tuple[NetworkResource, ...]] = {}
    for task in group.tasks:
        for network in task.resources.networks:
            granted = _grant_network(offer, network)
            if isinstance(granted, str):
                return granted
            tasks[task.name] = (*tasks.get(task.name, ()), granted[0])
    return PortGrant(tuple(shared), tuple(mappings), tasks)


class PortProblem(msgspec.Struct, frozen=True):
    """A port that is unavailable on a node: a static one (`value`), one of the dynamic range, or any port for lack of
    an address in its host network or the default one (`address`)."""

    kind: Literal["static", "dynamic", "host_network", "address"]
    text: str
    label: str
    value: int = 0


def port_problems(node: Node, used: Mapping[str, int], group: TaskGroup) -> tuple[PortProblem, ...]:
    """All ports that are unavailable on the node, each checked after the others were assigned."""
    offer = _Offer(node, used, 0)
    problems: list[PortProblem] = []
    networks = [*group.networks, *(network for task in group.tasks for network in task.resources.networks)]
    for network in networks:
        for port in (*network.reserved_ports, *network.dynamic_ports):
            problem = _port_problem(offer, port, is_static=port in network.reserved_ports)
            if problem is not None:
                problems.append(problem)
    return tuple(problems)


def _port_problem(offer: _Offer, port: Port, *, is_static: bool) -> PortProblem | None:
    address = offer.address(port.host_network)
    if address is None:
        text = f"network: no addresses available for {port.host_network or 'default'} network"
        return PortProblem("host_network" if port.host_network not in ("", "default") else "address", text, port.label)
    value: int | None = port.value
    if is_static:
        if not 0 < port.value <= PORT_MAX:
            return PortProblem("static", f"network: invalid port {port.label}={port.value}", port.label)
        if not port.ignore_collision and offer.bits(address) >> port.value & 1:
            text = f"network: reserved port collision {port.label}={port.value}"
            return PortProblem("static", text, port.label, port.value)
    else:
        value = offer.dynamic(address)
        if value is None:
            return PortProblem("dynamic", "network: dynamic port selection failed", port.label)
    assert value is not None
    offer.take(address, value)
    return None


def _grant_network(offer: _Offer, network: NetworkResource) -> tuple[NetworkResource, list[PortMapping]] | str:
    mappings: list[PortMapping] = []
    fixed, dynamic = [], []
    for port in network.reserved_ports:
        address = offer.address(port.host_network)
        if address is None:
            return f"network: no addresses available for {port.host_network or 'default'} network"
        if not 0 < port.value <= PORT_MAX:
            return f"network: invalid port {port.label}={port.value}"
        if not port.ignore_collision and offer.bits(address) >> port.value & 1:
            return f"network: reserved port collision {port.label}={port.value}"
        offer.take(address, port.value)
        fixed.append(port)
        mappings.append(_mapping(port, port.value, address))
    for port in network.dynamic_ports:
        address = offer.address(port.host_network)
        if address is None:
            return f"network: no addresses available for {port.host_network or 'default'} network"
        value = offer.dynamic(address)
        if value is None:
            return "network: dynamic port selection failed"
        offer.take(address, value)
        dynamic.append(replace(port, value=value, to=value if port.to == -1 else port.to))
        mappings.append(_mapping(port, value, address))
    assert len(mappings) == len(fixed) + len(dynamic), "each port is mapped once"
    granted = replace(
        network,
        ip=offer.address("") or "",
        device=network.device or ("" if offer.default is None else offer.default.device),
        reserved_ports=tuple(fixed),
        dynamic_ports=tuple(dynamic),
    )
    return granted, mappings


def _address_of(network: HostNetworkInfo) -> str:
    return network.cidr.partition("/")[0]


def _mapping(port: Port, value: int, address: str) -> PortMapping:
    return PortMapping(label=port.label, value=value, to=value if port.to == -1 else port.to, host_ip=address)


def default_address(node: Node) -> str | None:
    """The address of ports without a named host network."""
    network = _default_network(node)
    return None if network is None else _ip_of(network)


def _default_network(node: Node) -> NetworkResource | None:
    """The first network of the host that has an address."""
    for network in node.node_resources.networks:
        if network.mode in ("", "host") and (network.ip or network.cidr):
            return network
    return None


def _ip_of(network: NetworkResource) -> str:
    return network.ip or network.cidr.split("/")[0]


@lru_cache(maxsize=RESERVED_CACHE)
def reserved_bits(ranges: str) -> int:
    """A set of ports such as "22,80,8500-8600" as bits; unparsable parts are ignored."""
    bits = 0
    for part in ranges.split(","):
        low, _, high = part.strip().partition("-")
        if not (low.isascii() and low.isdigit() and len(low) <= 5 and len(high) <= 5):
            continue
        first, last = int(low), int(high) if high.isascii() and high.isdigit() else int(low)
        last = min(last, PORT_MAX)
        if first <= last:
            bits |= ((1 << (last - first + 1)) - 1) << first
    return bits
