"""Networks and ports, as requested and as allocated."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class DNSConfig(Value):
    """Resolver settings of a network namespace."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CNIConfig(Value):
    """Arguments passed to CNI plugins."""

    args: Mapping[str, str] = no_entries()


class Port(Value):
    """A requested port: static when `value` is set, otherwise dynamic; `to` is the port inside a namespace."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_network: str = ""
    ignore_collision: bool = False


class PortMapping(Value):
    """An allocated port: host address and port, and the port inside the namespace."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_ip: str = ""


class NetworkResource(Value):
    """A network as requested by a job, offered by a node, or allocated to an allocation."""

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
