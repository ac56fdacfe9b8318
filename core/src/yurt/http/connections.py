"""How many connections one address may have to the HTTP API, and how long a handshake of TLS may take."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from typing import Any

from aiohttp import web

BACKLOG = 1024
TOO_MANY = b"too many connections from one address (limits.http_max_conns_per_client); close some, or use them again\n"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"


class OwnSockets:
    """The connections of an agent to its own API, which carry the requests that other agents pass on.

    They count to nobody's limit: the agents bound what they pass on.
    """

    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket to an address of this machine (one of getaddrinfo's), known before it is connected."""
        family, kind, protocol, _, place = address
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            made.bind((place[0], 0))
        except OSError:
            made.close()
            raise
        self._places.add(made.getsockname()[:2])
        return made

    def take(self, place: tuple[str, int]) -> bool:
        """Whether the connection from there is one of these; asked once for each."""
        is_own = place in self._places
        self._places.discard(place)
        return is_own


class Connections:
    """The connections by address, over all addresses at which the agent listens."""

    def __init__(self, per_address_max: int, own: OwnSockets | None = None) -> None:
        """0: without limit."""
        self.refused = 0
        self._own = own or OwnSockets()
        self._per_address_max = per_address_max
        self._per_address: Counter[str] = Counter()
        self._hosts: dict[Any, str] = {}

    def watch(self, server: web.Server) -> None:
        """Count the connections of a server, and end those that are too many."""
        made, lost = server.connection_made, server.connection_lost

        def connection_made(handler: Any, transport: asyncio.Transport) -> None:
            made(handler, transport)
            self._enter(handler, transport)

        def connection_lost(handler: Any, error: BaseException | None = None) -> None:
            lost(handler, error)
            self._leave(handler)

        setattr(server, "connection_made", connection_made)  # noqa: B010 - methods of the one server, not of its class
        setattr(server, "connection_lost", connection_lost)  # noqa: B010

    def _enter(self, handler: Any, transport: asyncio.Transport) -> None:
        place = transport.get_extra_info("peername")
        host = str(place[0]) if isinstance(place, tuple) else ""
        if isinstance(place, tuple) and self._own.take(place[:2]):
            return
        self._hosts[handler] = host
        self._per_address[host] += 1
        if 0 < self._per_address_max < self._per_address[host]:
            self.refused += 1
            transport.write(REFUSAL + b"Content-Length: %d\r\n\r\n" % len(TOO_MANY) + TOO_MANY)
            transport.close()

    def _leave(self, handler: Any) -> None:
        host = self._hosts.pop(handler, None)
        if host is None:
            return
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]


class Site(web.BaseSite):
    """One address at which the API is served."""

    def __init__(
        self, runner: web.AppRunner, listening: socket.socket, *, tls: ssl.SSLContext | None, handshake_s: float
    ) -> None:
        """`handshake_s` 0: as long as it takes."""
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._listening = listening
        self._handshake_s = handshake_s

    @property
    def name(self) -> str:
        """Where it is."""
        host, port = self._listening.getsockname()[:2]
        return f"{'https' if self._ssl_context else 'http'}://{host}:{port}"

    async def start(self) -> None:
        """Take connections."""
        await super().start()
        server = self._runner.server
        assert server is not None
        tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            tls = {"ssl": self._ssl_context, "ssl_handshake_timeout": self._handshake_s or None}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(server, sock=self._listening, backlog=self._backlog, **tls)
