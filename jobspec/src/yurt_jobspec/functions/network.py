"""Functions on IP networks."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

from yurt_jobspec.values import ListValue, Value

from .registry import Arguments, FunctionError

_Network = IPv4Network | IPv6Network


def _network(text: str) -> _Network:
    if "/" not in text:
        raise FunctionError(f"invalid CIDR expression: {text} has no prefix length", 0)
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise FunctionError(f"invalid CIDR expression: {error}", 0) from None


def _whole(value: Any, argument: int) -> int:
    if not isinstance(value, int):
        raise FunctionError("a whole number is required", argument)
    return value


def _address(network: _Network, number: int) -> str:
    return str((IPv4Address if network.version == 4 else IPv6Address)(number))


def cidrhost(args: Arguments) -> str:
    """The host with this number; a negative number counts from the end."""
    network, number = _network(args[0]), _whole(args[1], 1)
    offset = number if number >= 0 else network.num_addresses + number
    if not 0 <= offset < network.num_addresses:
        raise FunctionError(f"prefix of {network.prefixlen} does not accommodate a host numbered {number}", 1)
    return _address(network, int(network.network_address) + offset)


def cidrnetmask(args: Arguments) -> str:
    network = _network(args[0])
    if network.version != 4:
        raise FunctionError("only IPv4 networks have a netmask", 0)
    return str(network.netmask)


def cidrsubnet(args: Arguments) -> str:
    network, bits, number = _network(args[0]), _whole(args[1], 1), _whole(args[2], 2)
    length = network.prefixlen + bits
    if bits < 0 or length > network.max_prefixlen:
        raise FunctionError(f"not enough remaining address space for a subnet with a prefix of {length} bits", 1)
    if not 0 <= number < 1 << bits:
        raise FunctionError(f"prefix extension of {bits} does not accommodate a subnet numbered {number}", 2)
    start = int(network.network_address) + (number << (network.max_prefixlen - length))
    return f"{_address(network, start)}/{length}"


def cidrsubnets(args: Arguments) -> Value:
    """Consecutive subnets; each number is the additional prefix bits of one."""
    network = _network(args[0])
    at, end = int(network.network_address), int(network.network_address) + network.num_addresses
    subnets: list[str] = []
    for argument, value in enumerate(args[1:], 1):
        bits = _whole(value, argument)
        length = network.prefixlen + bits
        if bits < 1 or length > network.max_prefixlen:
            raise FunctionError(f"cannot extend the prefix by {bits} bits", argument)
        size = 1 << (network.max_prefixlen - length)
        at = -(-at // size) * size
        if at + size > end:
            raise FunctionError("not enough remaining address space for all subnets", argument)
        subnets.append(f"{_address(network, at)}/{length}")
        at += size
    return ListValue("string", tuple(subnets))
