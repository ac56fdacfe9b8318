"""Networks and ports, asked and offered."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class DNSConfig(Value):
    """Resolver settings of a network namespace."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CNIConfig(Value):
    """Arguments handed to CNI plugins."""

    args: Mapping[str, str] = no_entries()


class Port(Value):
    """A port that is asked for: static when `value` is set, dynamic otherwise; `to` is the port inside a namespace."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_network: str = ""
    ignore_collision: bool = False


class PortMapping(Value):
    """A port that was given: host address and port, and the port inside a namespace."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_ip: str = ""


class NetworkResource(Value):
    """A network, as asked by a job, as offered by a node, or as given to an allocation."""

    mode: str = ""
    device: str = ""
    cidr: str = ""
    ip: str = ""
    dns: DNSConfig | None = None
    reserved_ports: tuple[Port, ...] = ()
    dynamic_ports: tuple[Port, ...] = ()
    hostname: str = ""
    mbits: int = 0
    cni: CNIConfig | None = None
