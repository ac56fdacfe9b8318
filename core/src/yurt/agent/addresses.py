"""Network addresses: parsing and formatting."""

from __future__ import annotations

import errno
import ipaddress
import socket


def with_port(address: str, port: int) -> str:
    """`host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address, with the default port where none is given."""
    if address.count(":") > 1 and not address.startswith("["):
        return f"[{address}]:{port}"
    host, colon, own_port = address.rpartition(":")
    if colon and own_port.isdigit():
        return f"{host}:{own_port}"
    return f"{address}:{port}"


def host_of(address: str) -> str:
    """The host of `host:port` without the brackets of a v6 address."""
    return address.rpartition(":")[0].strip("[]")


def reachable(address: str) -> str:
    """The address at which this machine itself reaches a listener on `address`."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address) or bracketed(address)


def is_in_use(address: str, port: int) -> bool:
    """Whether another process listens on an address and port of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def bracketed(host: str) -> str:
    """A host in the form that precedes a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on the address; False for a host name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"
