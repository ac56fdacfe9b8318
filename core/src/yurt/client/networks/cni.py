"""The runtime side of the Container Network Interface (specifications 0.3.1, 0.4.0, 1.0, 1.1); pure.

A network is a list of plugins. To ADD, each plugin in turn is given its part of the list with the result of the one
before it; the last result is the network's. DEL and CHECK are given that result too; DEL goes through the list
backwards. What a plugin declares under `capabilities` it is given under `runtimeConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries
from yurt.structs.alloc import AllocNetworkStatus
from yurt.structs.network import DNSConfig, PortMapping

PROTOCOLS = ("tcp", "udp")
SPOKEN = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions of the specification whose results this runtime understands."""
SINCE_CHECK = (0, 4, 0)
DEFAULT_VERSION = "0.3.1"
INTERFACE = "eth0"
UNSAFE_ARGUMENT = re.compile(r"[;\0]")
WILDCARDS = ("", "0.0.0.0", "::")


class NetworkConfig(Value):
    """A named network: the list of plugins that connect to it."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    is_checked: bool = True

    @property
    def programs(self) -> tuple[str, ...]:
        """All plugins that the network runs, address management included."""
        found = [str(plugin["type"]) for plugin in self.plugins]
        inner = [plugin["ipam"]["type"] for plugin in self.plugins if (plugin.get("ipam") or {}).get("type")]
        return tuple(dict.fromkeys((*found, *map(str, inner))))


class Attachment(Value):
    """The parameters of plugins for one allocation."""

    container_id: str
    namespace: str
    args: Mapping[str, str] = no_entries()
    ports: tuple[PortMapping, ...] = ()
    interface: str = INTERFACE
    binds_wildcard: bool = True


def read_config(data: bytes, file: str) -> NetworkConfig:
    """A `.conflist`, or a `.conf` or `.json` of a single plugin; raises Invalid, which names the file."""
    try:
        config = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Invalid(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("name"), str) or not config["name"]:
        raise Invalid(f'{file}: a CNI configuration is an object with a "name"')
    version = config.get("cniVersion") or DEFAULT_VERSION
    if version not in SPOKEN:
        raise Invalid(f'{file}: cniVersion "{version}" is not one of {", ".join(SPOKEN)}')
    plugins = config.get("plugins", [config])
    if not isinstance(plugins, list) or not plugins or not all(_is_plugin(each) for each in plugins):
        raise Invalid(f'{file}: "plugins" must be a list of objects with a "type" that is a file name')
    return NetworkConfig(
        name=config["name"], version=version, plugins=tuple(plugins), is_checked=not config.get("disableCheck", False)
    )


def _is_plugin(value: Any) -> bool:
    """Whether a value is a plugin: an object with a program's name and well-formed parts."""
    if not isinstance(value, dict) or not _is_file_name(value.get("type")):
        return False
    parts = [value.get(part) for part in ("ipam", "capabilities", "runtimeConfig")]
    inner = value.get("ipam") or {}
    return all(part is None or isinstance(part, dict) for part in parts) and _is_file_name(inner.get("type", "none"))


def _is_file_name(text: Any) -> bool:
    """Whether a text is one safe path component."""
    return isinstance(text, str) and bool(text) and "/" not in text and "\0" not in text and text not in (".", "..")


def keeps_result(config: NetworkConfig) -> bool:
    """Whether plugins of this version support CHECK, and receive the result of ADD on DEL."""
    return tuple(map(int, config.version.split("."))) >= SINCE_CHECK


def request(
    config: NetworkConfig, plugin: Mapping[str, Any], attachment: Attachment, previous: Mapping[str, Any] | None
) -> bytes:
    """The standard input of a plugin."""
    body = {key: value for key, value in plugin.items() if key not in ("plugins", "disableCheck")}
    body |= {"cniVersion": config.version, "name": config.name}
    capabilities = plugin.get("capabilities") or {}
    offered = {"portMappings": port_mappings(attachment)}
    runtime_config = {name: value for name, value in offered.items() if capabilities.get(name) and value}
    if runtime_config:
        body["runtimeConfig"] = {**(plugin.get("runtimeConfig") or {}), **runtime_config}
    if previous:
        body["prevResult"] = previous
    return msgspec.json.encode(body)


def port_mappings(attachment: Attachment) -> list[dict[str, Any]]:
    """The port mappings, each port for each protocol; with a host address when the port is bound to one."""
    found: list[dict[str, Any]] = []
    for port in attachment.ports:
        inside = port.to if port.to > 0 else port.value
        where = {} if attachment.binds_wildcard or port.host_ip in WILDCARDS else {"hostIP": port.host_ip}
        found += [
            {"hostPort": port.value, "containerPort": inside, "protocol": protocol, **where} for protocol in PROTOCOLS
        ]
    return found


def environment(command: str, attachment: Attachment, paths: Iterable[str]) -> dict[str, str]:
    """The environment of a plugin."""
    for name, value in attachment.args.items():
        if not name or "=" in name or UNSAFE_ARGUMENT.search(name + value):
            raise Invalid(f'cni args: {name!r} = {value!r} must have a name without "=", and no ";"')
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": attachment.container_id,
        "CNI_NETNS": attachment.namespace,
        "CNI_IFNAME": attachment.interface,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in attachment.args.items()),
        "CNI_PATH": ":".join(paths),
    }


def failure_text(output: bytes, errors: bytes) -> str:
    """The reason of a plugin's failure, from its answer or its standard error."""
    try:
        answer = msgspec.json.decode(output)
    except msgspec.DecodeError:
        answer = None
    if isinstance(answer, dict) and answer.get("msg"):
        return ": ".join(str(answer[part]) for part in ("msg", "details") if answer.get(part))
    text = (output + b" " + errors).decode(errors="replace").strip()
    return text[-500:] or "it gave no reason"


def read_result(data: bytes) -> Mapping[str, Any]:
    """A plugin's answer to ADD; raises Invalid."""
    try:
        result = msgspec.json.decode(data) if data.strip() else {}
    except msgspec.DecodeError as error:
        raise Invalid(f"its answer is not JSON: {error}") from None
    if not isinstance(result, dict):
        raise Invalid("its answer is not an object")
    return result


class _Interface(msgspec.Struct):
    name: str = ""
    sandbox: str | None = None


class _Ip(msgspec.Struct):
    address: str
    interface: int | None = None


class _Dns(msgspec.Struct):
    nameservers: tuple[str, ...] | None = None
    search: tuple[str, ...] | None = None
    options: tuple[str, ...] | None = None


class _Result(msgspec.Struct):
    interfaces: tuple[_Interface, ...] | None = None
    ips: tuple[_Ip, ...] | None = None
    dns: _Dns | None = None


def status_of(answer: Mapping[str, Any]) -> AllocNetworkStatus:
    """The network status: the first interface in the namespace with an address, its addresses, its resolver.

    The `interface` of an address is a place in the list of interfaces; those with a `sandbox` are inside. Raises
    Invalid for an answer of another shape.
    """
    try:
        result = msgspec.convert(dict(answer), _Result)
    except msgspec.ValidationError as error:
        raise Invalid(f"its answer has not the shape of a result: {error}") from None
    inside = {at: each.name for at, each in enumerate(result.interfaces or ()) if each.sandbox}
    name, found = "", {4: "", 6: ""}
    for entry in result.ips or ():
        if entry.interface is not None and entry.interface not in inside:
            continue
        own = inside[entry.interface] if entry.interface is not None else ""
        if name and own and own != name:
            continue
        name = name or own
        address = _address(entry.address)
        found[address.version] = found[address.version] or str(address.ip)
    dns = result.dns or _Dns()
    resolver = DNSConfig(servers=dns.nameservers or (), searches=dns.search or (), options=dns.options or ())
    return AllocNetworkStatus(
        interface_name=name or next(iter(inside.values()), "") or INTERFACE,
        address=found[4] or found[6],
        address_ipv6=found[6],
        dns=resolver if resolver != DNSConfig() else None,
    )


def _address(text: str) -> IPv4Interface | IPv6Interface:
    try:
        return ip_interface(text)
    except ValueError:
        raise Invalid(f"its answer holds {text!r}, which is not an IP address") from None
