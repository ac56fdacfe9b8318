"""Mutual TLS on the membership port: servers identify each other by the role in their agents' certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from yurt.agent.tls import TlsSettings, channel_credentials, dialling, server_credentials
from yurt.rpc.certificates import DOMAIN, SERVER, facts_of, role_name
from yurt.rpc.dialling import Security
from yurt.rpc.listener import Caller
from yurt.sdk.errors import Invalid, PermissionDenied, Unavailable

LOOK_LIMIT_S = 5.0


class ServerSecurity:
    """The TLS settings with which servers dial and accept servers."""

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls

    def listening(self) -> Callable[[], ssl.SSLContext] | None:
        """The TLS settings for accepting others; None without TLS."""
        return server_credentials(self._tls)

    def dialling(self, region: str) -> Security | None:
        """The TLS settings for dialling a server of a region; None without TLS."""
        return dialling(self._tls, role_name(SERVER, region))

    @property
    def allows_plain(self) -> bool:
        """Whether servers without TLS are accepted too."""
        return self._tls.upgrade

    def check(self, region: str, caller: Caller) -> None:
        """Raises PermissionDenied unless the certificate is one of a server of the region."""
        expected = role_name(SERVER, region)
        if self._tls.needs_certificate(has_tls=caller.has_tls) and expected not in caller.names:
            raise PermissionDenied(f"the certificate names {', '.join(caller.names) or 'nobody'}, and not {expected}")

    def check_host(self, host: str) -> None:
        """Raises Invalid unless the certificate names the address at which etcd members reach this server."""
        if not self._tls.rpc:
            return
        names = facts_of(Path(self._tls.cert_file).read_bytes()).names
        if host not in names:
            raise Invalid(
                f"tls: the servers' etcd members check each other's addresses, and cert_file does not name {host} "
                f"(it names {', '.join(names)}); make one with `yurt tls cert create -server -additional-ipaddress "
                f"{host}`, or change advertise.serf"
            )

    async def region_at(self, address: str, usual: str) -> str:
        """The region of the server at an address, by its certificate, which the authority must have signed.

        Without TLS nothing depends on it. Raises Unavailable when nobody answers there, PermissionDenied for a
        certificate that is not a server's.
        """
        if not self._tls.rpc:
            return usual
        try:
            names = await _names_at(address, self._tls)
        except Unavailable:
            if self._tls.upgrade:
                return usual  # it may not speak TLS yet; an absent server learns of it when it is dialled
            raise
        regions = [name.split(".")[1] for name in names if _is_server_name(name)]
        if not regions:
            raise PermissionDenied(f"{address} shows no certificate of a server, it names {', '.join(names)}")
        return usual if usual in regions else regions[0]


def _is_server_name(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == SERVER and parts[2] == DOMAIN


async def _names_at(address: str, tls: TlsSettings) -> list[str]:
    context = channel_credentials(tls)
    context.check_hostname = False
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"{address}: {str(error) or 'no answer'}") from None
    shown = writer.get_extra_info("peercert") or {}
    writer.close()
    return [value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"]
