"""The network of a container: its mode, names, addresses and published ports; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from yurt.sdk.containers.hosts import HOSTS, check_names, shared_file
from yurt.sdk.containers.ports import published
from yurt.sdk.driver import NameServers, TaskRequest
from yurt.sdk.errors import DriverError

from yurt_driver_docker.config import TaskConfig

BUILT_IN_MODES = ("", "default", "bridge", "host", "none")


class NetworkParts(msgspec.Struct, frozen=True):
    """The network parts of the container's body and of its host configuration."""

    body: dict[str, Any]
    host: dict[str, Any]


def network_mode(request: TaskRequest, pause_id: str) -> str:
    """The task's own mode, or else its group's namespace, or else the engine's bridge."""
    config: TaskConfig = request.config
    if config.network_mode:
        return config.network_mode
    return f"container:{pause_id}" if pause_id else "default"


def network_parts(request: TaskRequest, pause_id: str) -> NetworkParts:
    """All network options; in a foreign namespace, ports and names belong to its owner."""
    config: TaskConfig = request.config
    mode = network_mode(request, pause_id)
    check_names(
        request,
        mode,
        {
            "dns_servers": config.dns_servers,
            "dns_search_domains": config.dns_search_domains,
            "dns_options": config.dns_options,
            "extra_hosts": config.extra_hosts,
            "hostname": config.hostname,
        },
    )
    host: dict[str, Any] = {"NetworkMode": mode}
    body: dict[str, Any] = {}
    is_shared = mode.startswith("container:")
    names = request.name_servers or NameServers()
    if not is_shared:
        host |= {
            "Dns": config.dns_servers or list(names.servers),
            "DnsSearch": config.dns_search_domains or list(names.searches),
            "DnsOptions": config.dns_options or list(names.options),
            "ExtraHosts": [] if shared_file(request, HOSTS) else config.extra_hosts,
        }
        body["Hostname"] = config.hostname or request.hostname
    if config.mac_address:
        body["MacAddress"] = config.mac_address
    ports = bindings(request)
    if ports and not is_shared and mode not in ("host", "none"):
        body["ExposedPorts"] = {name: {} for name in ports}
        host["PortBindings"] = ports
    endpoint = endpoint_config(config)
    if endpoint:
        if mode in BUILT_IN_MODES or is_shared:
            raise DriverError(
                "network_aliases, ipv4_address and ipv6_address need a network of their own;"
                f' network_mode is "{mode}": make one with "docker network create" and name it there'
            )
        body["NetworkingConfig"] = {"EndpointsConfig": {mode: endpoint}}
    return NetworkParts(body, host)


def endpoint_config(config: TaskConfig) -> dict[str, Any]:
    """Names and addresses in a user-defined network."""
    addresses = {"IPv4Address": config.ipv4_address, "IPv6Address": config.ipv6_address}
    ipam = {name: address for name, address in addresses.items() if address}
    endpoint: dict[str, Any] = {"IPAMConfig": ipam} if ipam else {}
    if config.network_aliases:
        endpoint["Aliases"] = config.network_aliases
    return endpoint


def bindings(request: TaskRequest) -> dict[str, list[dict[str, str]]]:
    """Maps container ports such as `8080/tcp` to host addresses and ports, from `ports` and `port_map`."""
    config: TaskConfig = request.config
    found: dict[str, list[dict[str, str]]] = {}
    for each in published(request.ports, config.ports, config.port_map):
        binding = {"HostIp": each.host_ip, "HostPort": str(each.host_port)}
        found.setdefault(f"{each.inside}/{each.protocol}", []).append(binding)
    return found


def driver_address(inspected: Mapping[str, Any], *, wants_ipv6: bool) -> str:
    """The container's own address, for services that advertise it; empty in a foreign namespace."""
    networks = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
    key = "GlobalIPv6Address" if wants_ipv6 else "IPAddress"
    return next((str(each[key]) for each in networks.values() if each.get(key)), "")
