"""Finds out whether two servers accept each other's certificates, before their etcd members depend on it.

etcd's members show the agents' certificates and check what agents check: authority, dates and role. So a new connection
by TLS to another server's port, with the files as they are now, gives etcd's answer for both directions while its
members still speak plain text. The other end's refusal, a TLS alert, comes after the handshake (TLS 1.3): so its
greeting counts. One that ends the connection without an alert may be stopping, or is of an earlier version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final

from yurt.agent.addresses import host_of
from yurt.agent.cluster.security import ServerSecurity
from yurt.rpc.certificates import SERVER, role_name
from yurt.rpc.dialling import CertificateRefused, Dialler, Untrusted
from yurt.rpc.frames import Hello
from yurt.rpc.wire import ConnectionLost
from yurt.sdk.errors import PermissionDenied, Unavailable, YurtError
from yurt.structs.member import Member

NOT_YET_VALID, EXPIRED, HOSTNAME_MISMATCH = 9, 10, 62
"""OpenSSL's `X509_V_ERR_CERT_NOT_YET_VALID`, `_CERT_HAS_EXPIRED` and `_HOSTNAME_MISMATCH`."""
UNKNOWN_AUTHORITY: Final = (2, 7, 18, 19, 20, 21, 30)
"""OpenSSL's errors of a certificate that no known authority has signed."""
UNKNOWN_AUTHORITY_TEXT: Final = (
    "is not signed by an authority in this server's ca_file: sign it by that authority, or add its own authority to "
    "the ca_file of all servers"
)


class CertificateMismatch(Unavailable):
    """One of two servers does not accept the other one's certificate."""


class OtherRole(CertificateMismatch):
    """The other end's certificate does not name a server of this region."""


class CertificateProbe:
    """Connects by TLS to other servers; never in plain text, also where `rpc_upgrade_mode` allows that."""

    def __init__(self, hello: Callable[[], Hello], *, security: ServerSecurity, region: str) -> None:
        """`region`: that of this server and of the servers that it connects to."""
        self._hello = hello
        self._security = security
        self._region = region

    async def problem_with(self, server: Member) -> str:
        """Why the etcd members of this server and that one could not reach each other by TLS now; "" if they could."""
        who, host = f"server {server.name}", host_of(server.etcd_addr)
        try:
            certificate = await self._certificate_at(server.address, who)
        except YurtError as error:
            return str(error) if isinstance(error, CertificateMismatch) else f"{who}: {error}"
        if names_host(certificate, host):
            return ""
        return (
            f"the certificate of {who} does not name {host}, where its etcd member is reached: make one with "
            f"`yurt tls cert create -server -additional-ipaddress {host}`"
        )

    async def mismatches(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """The certificates that this server or others refuse; other failures do not count.

        `names`: those of the others by their addresses, "" for unknown ones, which may be servers of other regions.
        """
        async with asyncio.TaskGroup() as group:
            tries = [
                group.create_task(self._mismatch(address, name), name=f"certificate of {address}")
                for address, name in names.items()
            ]
        return tuple(found for each in tries if (found := each.result()))

    async def _mismatch(self, address: str, name: str) -> str:
        try:
            await self._certificate_at(address, f"server {name}" if name else f"the server at {address}")
        except CertificateMismatch as error:
            return str(error) if name or not isinstance(error, OtherRole) else ""
        except YurtError:
            pass
        return ""

    async def _certificate_at(self, address: str, who: str) -> Any:
        """The certificate of the server at an address, in `ssl`'s form; raises CertificateMismatch or Unavailable."""
        security = self._security.dialling(self._region)
        assert security is not None, "a server without TLS asks for no certificates"
        dialler = Dialler(self._hello, security._replace(allows_plain=False))
        try:
            wire = await dialler.reach(address)
        except Untrusted as error:
            kind = OtherRole if error.code == HOSTNAME_MISMATCH else CertificateMismatch
            raise kind(self._refused_here(who, error)) from None
        except CertificateRefused as error:
            raise CertificateMismatch(f"{who}: {error}") from None
        try:
            await dialler.greet(wire)
            return wire.certificate
        except ConnectionLost:
            raise Unavailable(
                "it ended the connection before it answered: it may be stopping, or refuse this server for a reason "
                'that its log gives ("a connection is refused")'
            ) from None
        except CertificateRefused as error:
            raise CertificateMismatch(f"{who}: {error}") from None
        except PermissionDenied as error:
            raise CertificateMismatch(f"{who}: it does not accept the certificate of this agent: {error}") from None
        finally:
            wire.close()

    def _refused_here(self, who: str, error: Untrusted) -> str:
        texts = {
            NOT_YET_VALID: "is not valid yet: check the clocks of both servers",
            EXPIRED: "has expired, or that of its authority: renew it",
            HOSTNAME_MISMATCH: (
                f"does not name {role_name(SERVER, self._region)}: make one with `yurt tls cert create -server`"
            ),
            **dict.fromkeys(UNKNOWN_AUTHORITY, UNKNOWN_AUTHORITY_TEXT),
        }
        return f"the certificate of {who} {texts.get(error.code, f'is not accepted: {error}')}"


def names_host(certificate: Any, host: str) -> bool:
    """Whether a certificate in `ssl`'s form names an address or a host where etcd looks, which is not its common name.

    `ssl` writes IPv6 addresses in full, such as FD00:0:0:0:0:0:0:1, so addresses are compared by value.
    """
    names = certificate.get("subjectAltName", ())
    try:
        address = ip_address(host)
    except ValueError:
        return ("dns", host.lower()) in {(kind.lower(), name.lower()) for kind, name in names}
    return address in {ip_address(name) for kind, name in names if kind == "IP Address"}
