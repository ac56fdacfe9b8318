"""Names of hosts as `Host` and `Origin` carry them: which of them are this agent's own. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from yurt.sdk.value import Value

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
NO_HOST_LETTERS: Final = frozenset("/\\@?# ,%")
WILDCARD: Final = "*."
HOSTS_MAX: Final = 64
"""Parsed `Host` values that are cached, a few KiB each at most: nearly all requests name one of very few hosts."""


class HostPolicy(Value):
    """The agent's own names, and who else may read."""

    names: tuple[str, ...] = ()
    """Host names of the agent itself, in lower case."""
    allowed: tuple[str, ...] = ()
    """`http_allowed_hosts`: further names, `*.` before one for all below it, a port after it for `Origin`."""
    readers: str = ""
    """`Access-Control-Allow-Origin` of `http_api_response_headers`: `*`, or one origin."""


class HostPort(msgspec.Struct, frozen=True):
    """A host without brackets and trailing dot, and its port; 0 for none."""

    host: str
    port: int = 0


def is_own_host(host: str, policy: HostPolicy) -> bool:
    """Whether a `Host` is an address or a name of this agent; browsers always send one."""
    if not host:
        return True
    place = place_of(host)
    if place is None:
        return False
    if _is_address(place.host) or place.host == "localhost" or place.host.endswith(".localhost"):
        return True
    return place.host in policy.names or any(_is_named(place.host, entry) for entry in policy.allowed)


def is_own_origin(origin: str, policy: HostPolicy, hosts: Sequence[str], *, is_tls: bool) -> bool:
    """Whether a page of this agent sent the request: of the requested host, or of one in the setting."""
    scheme, _, rest = origin.strip().lower().partition("://")
    place = place_of(rest)
    if scheme not in DEFAULT_PORTS or place is None or (is_tls and scheme != "https"):
        return False
    port = place.port or DEFAULT_PORTS[scheme]
    for host in hosts:
        own = place_of(host)
        # A proxy that ends TLS asks over plain HTTP: without a port, `Host` fits the default port of either scheme.
        if own is not None and own.host == place.host and port == (own.port or DEFAULT_PORTS[scheme]):
            return True
    for entry in policy.allowed:
        listed = place_of(entry.lower())
        if listed is not None and _is_named(place.host, entry) and port == (listed.port or DEFAULT_PORTS[scheme]):
            return True
    return False


@lru_cache(maxsize=HOSTS_MAX)
def place_of(text: str) -> HostPort | None:
    """`name:port` or `[address]:port`, the port optional, in lower case; None for anything else."""
    if not text or not text.isprintable() or not NO_HOST_LETTERS.isdisjoint(text):
        return None
    try:
        parts = urlsplit(f"//{text.lower()}")
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        return None
    return HostPort(host.removesuffix("."), port) if host else None


def _is_named(host: str, entry: str) -> bool:
    listed = place_of(entry.lower())
    if listed is None:
        return False
    if listed.host.startswith(WILDCARD):
        return host.endswith(listed.host[1:])
    return host == listed.host


@lru_cache(maxsize=HOSTS_MAX)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_host(entry: str) -> bool:
    """Whether an entry of `http_allowed_hosts` can be used."""
    place = place_of(entry)
    return place is not None and "*" not in place.host.removeprefix(WILDCARD)
