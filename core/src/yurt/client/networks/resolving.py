"""Texts of /etc/hosts and /etc/resolv.conf for the tasks of a group.

A task in a namespace of its own cannot reach a resolver on the host's loopback, such as systemd's; it then gets the
servers that this resolver uses.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from yurt.structs.network import DNSConfig

HOST_FILE = Path("/etc/resolv.conf")
UPSTREAM_FILE = Path("/run/systemd/resolve/resolv.conf")
NAMES = "hosts"
RESOLVER = "resolv.conf"
LOCAL_NAMES = (
    "127.0.0.1 localhost",
    "::1 localhost",
    "::1 ip6-localhost ip6-loopback",
    "fe00::0 ip6-localnet",
    "ff00::0 ip6-mcastprefix",
    "ff02::1 ip6-allnodes",
    "ff02::2 ip6-allrouters",
)


def hosts_text(hostname: str, addresses: tuple[str, ...]) -> str:
    """The text of /etc/hosts of a namespace, with its host name at its addresses."""
    own = [f"{address} {hostname}" for address in addresses if address]
    return "\n".join(("# made for this allocation", *LOCAL_NAMES, *own)) + "\n"


def read_resolver(text: str) -> DNSConfig:
    """Parse a resolv.conf."""
    found: dict[str, tuple[str, ...]] = {"nameserver": (), "search": (), "options": ()}
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if len(words) < 2:
            continue
        match words[0]:
            case "nameserver":
                found["nameserver"] += (words[1],)
            case "search" | "domain":
                found["search"] = tuple(words[1:])
            case "options":
                found["options"] += tuple(words[1:])
    return DNSConfig(servers=found["nameserver"], searches=found["search"], options=found["options"])


def merged(first: DNSConfig | None, then: DNSConfig) -> DNSConfig:
    """Merge two configurations; each part is taken from the first that has it."""
    if first is None:
        return then
    return DNSConfig(
        servers=first.servers or then.servers,
        searches=first.searches or then.searches,
        options=first.options or then.options,
    )


def resolver_text(config: DNSConfig) -> str:
    """The text of a resolv.conf."""
    lines = [f"nameserver {server}" for server in config.servers]
    lines += [f"search {' '.join(config.searches)}"] if config.searches else []
    lines += [f"options {' '.join(config.options)}"] if config.options else []
    return "\n".join(("# made for this allocation", *lines)) + "\n"


def host_resolver(*, is_namespaced: bool) -> DNSConfig:
    """The resolver of this machine, as a namespace can reach it; blocking."""
    own = _read(HOST_FILE)
    if is_namespaced and own.servers and all(map(_is_loopback, own.servers)):
        behind = _read(UPSTREAM_FILE)
        return DNSConfig(
            servers=tuple(each for each in behind.servers if not _is_loopback(each)),
            searches=own.searches,
            options=own.options,
        )
    return own


def _read(path: Path) -> DNSConfig:
    try:
        return read_resolver(path.read_text(errors="replace"))
    except OSError:
        return DNSConfig()


def _is_loopback(server: str) -> bool:
    try:
        return ipaddress.ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False
