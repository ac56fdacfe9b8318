"""TLS alerts: the end that refuses a handshake says why, and the other end says it in words.

Event loops (asyncio's and uvloop's) close a connection whose handshake has failed without sending the alert that
OpenSSL has made for it, so that the other end cannot tell a refused certificate from a server that stops.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final

UNKNOWN_AUTHORITY: Final = "its ca_file has no authority that signed it"
OUT_OF_DATE: Final = "it has expired, or is not valid yet by that server's clock"
CERTIFICATE_ALERTS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": UNKNOWN_AUTHORITY,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": OUT_OF_DATE,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not valid",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is of a kind or for a purpose that is not accepted",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it is not accepted",
    "TLSV1_ALERT_ACCESS_DENIED": "it gives no access",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was shown",
}
"""OpenSSL's names of the alerts about this end's certificate, and what the other end says of it."""
VERSION_PROBLEMS: Final = frozenset(
    {"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "WRONG_SSL_VERSION"}
)
CIPHER_PROBLEMS: Final = frozenset(
    {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "NO_SHARED_CIPHER", "NO_CIPHERS_AVAILABLE"}
)

_connection: ContextVar[socket.socket | None] = ContextVar("connection", default=None)


def send_alerts_on(connection: socket.socket) -> None:
    """Alerts of the handshake that this task begins next, with an `AlertingContext`, go to this connection."""
    _connection.set(connection)


class AlertingContext(ssl.SSLContext):
    """A context for accepting connections that sends the alert of a failed handshake."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **settings: Any) -> ssl.SSLObject:
        """Same as that of its base; called by event loops in the context of the task that begins the handshake."""
        made = super().wrap_bio(incoming, outgoing, *args, **settings)
        if isinstance(made, _AlertingObject):
            made.outgoing, made.connection = outgoing, _connection.get()
        return made


class _AlertingObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    connection: socket.socket | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.connection is not None and self.outgoing.pending:
                with contextlib.suppress(OSError):  # the other end may have gone
                    self.connection.send(self.outgoing.read())
            raise


AlertingContext.sslobject_class = _AlertingObject
