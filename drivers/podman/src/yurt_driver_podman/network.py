"""The network of a container: its mode, names, addresses and published ports; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.containers.hosts import HOSTS, check_names, shared_file
from yurt.sdk.containers.ports import published
from yurt.sdk.driver import NameServers, TaskRequest
from yurt.sdk.errors import DriverError

from yurt_driver_podman.config import PluginConfig, TaskConfig

ENGINE_MODES = ("bridge", "host", "none", "private", "slirp4netns", "pasta")
OTHERS_MODES = ("container", "ns", "task")
Part = dict[str, Any]


def network_mode(request: TaskRequest, *, is_rootless: bool) -> str:
    """The task's own mode, or else its group's namespace, or else podman's default."""
    config: TaskConfig = request.config
    if config.network_mode:
        return config.network_mode
    if request.network_namespace:
        return f"ns:{request.network_namespace}"
    return "slirp4netns" if is_rootless else "bridge"


def network_part(request: TaskRequest, plugin: PluginConfig, *, is_rootless: bool) -> Part:
    """All network options; in a foreign namespace, ports and names belong to its owner."""
    config: TaskConfig = request.config
    mode = network_mode(request, is_rootless=is_rootless)
    kind, _, value = mode.partition(":")
    check_names(request, mode, requested_names(config))
    part: Part = {**namespace_part(kind, value, request), **names_part(config, plugin, request, kind)}
    endpoint = endpoint_options(config)
    is_network = kind not in (*ENGINE_MODES, *OTHERS_MODES)
    if is_network or kind == "bridge":
        part["networks"] = {(mode if is_network else "podman"): endpoint}
    elif endpoint:
        raise DriverError(f'network_aliases and mac_address need a network of their own; network_mode is "{mode}"')
    if kind not in (*OTHERS_MODES, "host", "none"):
        part["portmappings"] = [
            {"container_port": inside, "host_port": host_port, "host_ip": host_ip, "protocol": protocol}
            for inside, protocol, host_ip, host_port in published(request.ports, config.ports, config.port_map)
        ]
    return part


def namespace_part(kind: str, value: str, request: TaskRequest) -> Part:
    """The namespace that the container creates or joins."""
    match kind:
        case "task":
            if not value:
                raise DriverError('network_mode = "task:" must name a task of the group, for example "task:proxy"')
            return {"netns": {"nsmode": "container", "value": f"{value}-{request.alloc_id}"}}
        case "container":
            return {"netns": {"nsmode": "container", "value": value}}
        case "ns":
            return {"netns": {"nsmode": "path", "value": value}}
        case "slirp4netns" | "pasta":
            return {"netns": {"nsmode": kind}, "network_options": {kind: value.split(",") if value else []}}
        case _:
            return {"netns": {"nsmode": kind if kind in ENGINE_MODES else "bridge", "value": ""}}


def requested_names(config: TaskConfig) -> Part:
    """The options for names, by option name."""
    return {
        "dns": config.dns,
        "dns_search": config.dns_search,
        "dns_options": config.dns_options,
        "extra_hosts": config.extra_hosts,
        "hostname": config.hostname,
    }


def names_part(config: TaskConfig, plugin: PluginConfig, request: TaskRequest, kind: str) -> Part:
    """Host name, hosts file and name servers; a joined container has its own."""
    if kind in ("container", "task"):
        return {}
    part: Part = {"hostadd": [] if shared_file(request, HOSTS) else config.extra_hosts}
    if kind != "host":
        part["hostname"] = config.hostname or request.hostname
    names = request.name_servers or NameServers()
    part |= {
        "dns_server": config.dns or list(names.servers) or plugin.options.dns_servers,
        "dns_search": config.dns_search or list(names.searches),
        "dns_option": config.dns_options or list(names.options),
    }
    return {name: value for name, value in part.items() if value}


def endpoint_options(config: TaskConfig) -> Part:
    """Names and the hardware address in a network."""
    endpoint: Part = {}
    if config.network_aliases:
        endpoint["aliases"] = config.network_aliases
    if config.mac_address:
        endpoint["static_mac"] = config.mac_address
    return endpoint


def driver_address(inspected: Mapping[str, Any]) -> str:
    """The container's own address, for services that advertise it; empty in a foreign namespace."""
    settings = inspected.get("NetworkSettings") or {}
    networks = settings.get("Networks") or {}
    found = next((str(each["IPAddress"]) for each in networks.values() if each.get("IPAddress")), "")
    return found or str(settings.get("IPAddress") or "")
