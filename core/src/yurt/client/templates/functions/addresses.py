"""`sockaddr`: addresses of the node, by the names that go-sockaddr's templates use most."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Mapping

from yurt.client.templates.functions.arguments import text
from yurt.gotemplate import EvaluationFailure

NAMES = "GetPrivateIP, GetPrivateIPs, GetPublicIP, GetPublicIPs, GetInterfaceIP NAME and GetInterfaceIPs NAME"


def sockaddr(addresses: Mapping[str, tuple[str, ...]]) -> Callable[[object], str]:
    """The function over these addresses by interface; a plural name gives all of them, separated by spaces."""

    def call(query: object) -> str:
        try:
            words = shlex.split(text(query))
        except ValueError as error:
            raise EvaluationFailure(f"sockaddr {text(query)!r}: {error}") from None
        name = words[0].removesuffix("s") if words else ""
        match (name, *words[1:]):
            case ("GetPrivateIP",):
                found = [each for each in _all(addresses) if _is_private(each)]
            case ("GetPublicIP",):
                found = [each for each in _all(addresses) if ipaddress.ip_address(each).is_global]
            case ("GetInterfaceIP", interface):
                found = list(addresses.get(interface, ()))
            case _:
                raise EvaluationFailure(f"sockaddr {text(query)!r} is not available; there are {NAMES}")
        return " ".join(found) if words[0].endswith("s") else "".join(found[:1])

    return call


def _all(addresses: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [each for some in addresses.values() for each in some]


def _is_private(address: str) -> bool:
    found = ipaddress.ip_address(address)
    return found.version == 4 and found.is_private and not found.is_loopback and not found.is_link_local
