"""Addresses as operators write them, and as they are dialled."""

from __future__ import annotations


def with_port(address: str, port: int) -> str:
    """`host`, `host:port`, `[v6]`, `[v6]:port` or a bare v6 address, with the usual port where there is none."""
    if address.count(":") > 1 and not address.startswith("["):
        return f"[{address}]:{port}"
    host, colon, given = address.rpartition(":")
    if colon and given.isdigit():
        return f"{host}:{given}"
    return f"{address}:{port}"


def host_of(address: str) -> str:
    """The host of `host:port` without the brackets of a v6 address."""
    return address.rpartition(":")[0].strip("[]")


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
