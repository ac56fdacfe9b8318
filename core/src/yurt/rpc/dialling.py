"""Dials a server: TCP, TLS where required, then the greeting of both ends."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from yurt.rpc.frames import Hello, Welcome, error_of
from yurt.rpc.greeting import decode_welcome, encode_greeting
from yurt.rpc.tls_alerts import CERTIFICATE_ALERTS, CIPHER_PROBLEMS, VERSION_PROBLEMS
from yurt.rpc.wire import ConnectionLost, SocketWire, watch_for_silence
from yurt.sdk.errors import Unavailable

CONNECT_LIMIT_S = 3.0
"""How long a server may take to accept a connection, the handshake of TLS included."""
GREETING_LIMIT_S = 3.0
"""How long it may take to answer the greeting."""

PLAIN_HINT = (
    "it may not speak TLS yet: restart it with `tls { rpc = true }`. `tls { rpc_upgrade_mode = true }` on all agents "
    "lets those with and without TLS speak to each other until then"
)


class NoTls(Unavailable):
    """The other end does not speak TLS."""


class Untrusted(Unavailable):
    """The other end's certificate is not accepted here; `code` is OpenSSL's verification error (`X509_V_ERR_*`)."""

    code = 0


class CertificateRefused(Unavailable):
    """The other end does not accept the certificate that was shown to it, by its TLS alert."""


class Security(NamedTuple):
    """The TLS settings for dialling: credentials, read again for each connection, and the server's expected name.

    With `allows_plain` one that does not speak TLS is dialled without.
    """

    credentials: Callable[[], ssl.SSLContext]
    server_name: str
    allows_plain: bool = False


class Dialler:
    """Connects as one agent; `hello` creates a greeting for each connection."""

    def __init__(
        self, hello: Callable[[], Hello], security: Security | None = None, *, connect_s: float = CONNECT_LIMIT_S
    ) -> None:
        self._hello = hello
        self._connect_s = connect_s
        self._security = security

    async def reach(self, address: str) -> SocketWire:
        """A connection to the server, in plain text where that is allowed and it has no TLS; raises Unavailable."""
        wire = SocketWire()
        try:
            await _connect(wire, address, self._security, self._connect_s)
        except NoTls:
            if self._security is None or not self._security.allows_plain:
                raise
            wire = SocketWire()
            await _connect(wire, address, None, self._connect_s)
        return wire

    async def greet(self, wire: SocketWire) -> Welcome:
        """Greet the server; raises the server's refusal, or Unavailable."""
        wire.write(encode_greeting(self._hello()))
        try:
            async with asyncio.timeout(GREETING_LIMIT_S):
                welcome = decode_welcome(await wire.greeting())
        except ConnectionLost:
            # In TLS 1.3 the handshake ends here before the other end has seen the certificate.
            if wire.alert in CERTIFICATE_ALERTS:
                raise _refused(wire.alert) from None
            raise
        except TimeoutError:
            raise Unavailable(f"it did not answer within {GREETING_LIMIT_S:g} s") from None
        if welcome.problem:
            raise error_of(welcome.kind, welcome.problem, welcome.reason)
        return welcome


async def _connect(wire: SocketWire, address: str, security: Security | None, limit_s: float) -> None:
    host, _, port = address.rpartition(":")
    tls: dict[str, Any] = {}
    if security is not None:
        tls = {"ssl": security.credentials(), "server_hostname": security.server_name}
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_s):
            transport, _ = await loop.create_connection(lambda: wire, host.strip("[]"), int(port), **tls)
    except TimeoutError:
        raise Unavailable(f"it cannot be reached within {limit_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        untrusted = Untrusted(f"no connection by TLS: {error.verify_message or error}")
        untrusted.code = error.verify_code
        raise untrusted from None
    except ssl.SSLError as error:
        raise _tls_problem(error) from None
    except ConnectionResetError as error:
        if security is not None:
            raise NoTls(
                f"it ended the connection at the greeting of TLS; it may be stopping, or {PLAIN_HINT}"
            ) from None
        raise Unavailable(f"it cannot be reached: {error.strerror or error}") from None
    except OSError as error:
        text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise Unavailable(f"it cannot be reached: {text or error}") from None
    except ValueError as error:
        raise Unavailable(f"this is not a server address: {error}") from None
    connection = transport.get_extra_info("socket")
    if connection is not None:
        watch_for_silence(connection)


def _tls_problem(error: ssl.SSLError) -> Unavailable:
    """Why a handshake failed that did not fail for the other end's certificate."""
    alert = error.reason or ""
    if alert in CERTIFICATE_ALERTS:  # TLS 1.2: the handshake ends after the other end has seen the certificate
        return _refused(alert)
    if alert in VERSION_PROBLEMS:
        return Unavailable(
            f"no connection by TLS: no version of TLS is common to both ({alert}); see tls_min_version of both"
        )
    if alert in CIPHER_PROBLEMS:
        return Unavailable(f"no connection by TLS: the two ends agree on no cipher suite or key ({alert})")
    return NoTls(f"no connection by TLS: {alert or error}; {PLAIN_HINT}")


def _refused(alert: str) -> CertificateRefused:
    return CertificateRefused(f"it does not accept the certificate of this agent: {CERTIFICATE_ALERTS[alert]}")
