"""Limits the connections of one address to the HTTP API, and chooses which one to close for a new one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from yurt.http.edge.client_errors import ClientErrorReporter
from yurt.http.edge.protocol import ApiProtocol, Pace

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
        """Create a socket to an address of this machine (one of getaddrinfo's), registered before it connects."""
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
        """Whether the connection from this address is one of these; valid once per connection."""
        is_own = place in self._places
        self._places.discard(place)
        return is_own


class Connections:
    """The connections by address, over all addresses at which the agent listens.

    A connection beyond the limit replaces an inactive one of the same address: first the oldest one whose request has
    not arrived yet, then an idle one. So a client that sends half a request, or none, takes no connection from another
    client of the same address. When all connections are active, the new one is refused.
    """

    def __init__(
        self, per_address_max: int = 0, own: OwnSockets | None = None, *, pace: Pace | None = None,
        strangers: ClientErrorReporter | None = None, options: Mapping[str, Any] | None = None,
        is_task_api: bool = False,
    ) -> None:  # fmt: skip
        """`per_address_max` 0: without limit. `options`: those of aiohttp's RequestHandler.

        `is_task_api`: they come over the Unix socket of one task, which counts as one address.
        """
        self.is_task_api = is_task_api
        self.pace = pace or Pace()
        self.strangers = strangers or ClientErrorReporter()
        self.refused = 0
        self._own = own or OwnSockets()
        self._per_address_max = per_address_max
        self._options = dict(options or {})
        self._places: dict[str, dict[ApiProtocol, None]] = {}
        """By address, in the order in which they came or began their last request."""

    @property
    def at_work(self) -> int:
        """Connections with a request that is being answered."""
        return sum(each.is_at_work for protocols in self._places.values() for each in protocols)

    def make(self, server: web.Server) -> ApiProtocol:
        """What serves a new connection."""
        return ApiProtocol(server, self, **self._options)

    def enter(self, protocol: ApiProtocol, transport: asyncio.Transport) -> bool:
        """Count a connection, and close it or another one above the limit; returns whether its pace is watched."""
        place = transport.get_extra_info("peername")
        protocol.peer = str(place[0]) if isinstance(place, tuple) else ""
        if isinstance(place, tuple) and self._own.take(place[:2]):
            return False
        protocols = self._places.setdefault(protocol.peer, {})
        protocols[protocol] = None
        if not 0 < self._per_address_max < len(protocols):
            return True
        evicted = _least_useful(each for each in protocols if each is not protocol)
        if evicted is not None:
            self.leave(evicted)
            self.strangers.evict(protocol.peer)
            evicted.end()
            return True
        self.refused += 1
        self.strangers.refuse_connection(protocol.peer)
        transport.write(REFUSAL + b"Content-Length: %d\r\n\r\n" % len(TOO_MANY) + TOO_MANY)
        transport.close()
        return False

    def is_watched(self, protocol: ApiProtocol) -> bool:
        """Whether it is a stranger's; forwarding agents are exempt, because they wait for their own callers."""
        return protocol in self._places.get(protocol.peer, ())

    def end_all(self) -> None:
        """End every connection at once."""
        for protocol in [each for protocols in self._places.values() for each in protocols]:
            protocol.end()

    def put_last(self, protocol: ApiProtocol) -> None:
        """A connection begins a request: it is the youngest of those that have."""
        protocols = self._places.get(protocol.peer, {})
        if protocols.pop(protocol, self) is None:
            protocols[protocol] = None

    def leave(self, protocol: ApiProtocol) -> None:
        """A connection has ended."""
        protocols = self._places.get(protocol.peer)
        if protocols is None:
            return
        protocols.pop(protocol, None)
        if not protocols:
            del self._places[protocol.peer]


def _least_useful(others: Iterable[ApiProtocol]) -> ApiProtocol | None:
    """The connection that a further one replaces; None when all are in use."""
    candidates = [each for each in others if not each.is_at_work]
    return min(candidates, key=lambda each: (not each.is_head_awaited, not each.is_body_awaited), default=None)


class ServedAddress(web.BaseSite):
    """One address at which the API is served."""

    def __init__(
        self, runner: web.AppRunner, listening: socket.socket, connections: Connections, *,
        tls: ssl.SSLContext | None, handshake_s: float,
    ) -> None:  # fmt: skip
        """`handshake_s` 0: as long as it takes."""
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._connections = connections
        self._listening = listening
        self._handshake_s = handshake_s

    @property
    def name(self) -> str:
        """The address."""
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
        make = partial(self._connections.make, server)
        self._server = await asyncio.get_running_loop().create_server(
            make, sock=self._listening, backlog=self._backlog, **tls
        )
