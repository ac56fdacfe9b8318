"""The published ports of a container; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from yurt.sdk.driver import PortGiven
from yurt.sdk.errors import DriverError

PROTOCOLS = ("tcp", "udp")
PORT_MAX = 65535


class Published(NamedTuple):
    """A port inside the container, and the host address and port that lead to it."""

    inside: int
    protocol: str
    host_ip: str
    host_port: int


def published(
    ports: Iterable[PortGiven], labels: Sequence[str], port_map: Iterable[Mapping[str, int]]
) -> list[Published]:
    """The ports from `ports` and `port_map`, and the task's own, each for TCP and UDP."""
    by_label = {port.label: port for port in ports}
    own = [label for label, port in by_label.items() if port.of_task]
    mapped = {label: port for each in port_map for label, port in each.items()}
    found = []
    for label in dict.fromkeys((*labels, *mapped, *own)):
        port = port_named(label, by_label)
        inside = mapped.get(label) or (port.to if port.to > 0 else port.host_port)
        if not 0 < inside <= PORT_MAX:
            raise DriverError(f'port_map: {inside} of port "{label}" is not a valid port number (1 to {PORT_MAX})')
        found += [Published(inside, protocol, port.host_ip, port.host_port) for protocol in PROTOCOLS]
    return found


def port_named(label: str, ports: Mapping[str, PortGiven]) -> PortGiven:
    """The port of the task or its group with this label."""
    if label not in ports:
        listing = f"its ports are {', '.join(sorted(ports))}" if ports else "it has none"
        raise DriverError(f'ports: the group has no port "{label}" ({listing}); add it to the `network` block')
    return ports[label]
