"""The listening end: an agent that connects and sends its greeting in time becomes a peer."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol

import msgspec

from yurt.rpc.frames import Hello, Welcome, refusal
from yurt.rpc.greeting import decode_hello, encode_greeting
from yurt.rpc.limits import ConnectionAdmission, ConnectionRefused, RpcLimits
from yurt.rpc.peer import Peer, Served
from yurt.rpc.tls_alerts import send_alerts_on
from yurt.rpc.wire import ConnectionLost, SocketWire, begins_with_tls, names_in, watch_for_silence
from yurt.runtime.peer_lines import PeerLines
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, YurtError

log = logging.getLogger(__name__)

BACKLOG = 1024
CLOSE_LIMIT_S = 1.0
OUT_OF_FILES_PAUSE_S = 0.1
SERVER_ROLE = "server"

GetContext = Callable[[], ssl.SSLContext]
"""Returns the TLS context for a connection; called for each, so that a renewed certificate takes effect at once."""


class Caller(msgspec.Struct, frozen=True):
    """The dialling agent: its address, the names in its certificate if it has one, and whether it uses TLS."""

    address: str
    names: tuple[str, ...] = ()
    has_tls: bool = False


class PeerSession(msgspec.Struct, frozen=True):
    """The ports that a connection offers, and callbacks for its begin and end."""

    serves: Mapping[str, Served]
    opened: Callable[[Peer], None]
    closed: Callable[[Peer], None]


Bind = Callable[[str, int, str], Any]
"""Listens at a host and port, which are named as in the address; raises Invalid. The loop accepts from the result."""
Accept = Callable[[Hello, Caller], PeerSession]
"""Decides about a connection; raises a YurtError to refuse it."""


class ConnectionCounters(Protocol):
    """Counters of connections by outcome."""

    def count(self, name: str) -> None:
        """Count one connection."""
        ...


class NoConnectionCounters:
    """For listeners without metrics."""

    def count(self, name: str) -> None:
        """Ignore it."""


class Listener:
    """Accepts connections of agents on one address."""

    def __init__(
        self,
        *,
        accept: Accept,
        welcome: Welcome,
        limits: RpcLimits | None = None,
        metrics: ConnectionCounters | None = None,
        bind: Bind | None = None,
    ) -> None:
        """`bind` listens in the place of a socket of the system."""
        self._metrics = metrics or NoConnectionCounters()
        self._accept = accept
        self._bind = bind or _bound
        self._welcome = welcome
        self._limits = limits or RpcLimits()
        self._admission = ConnectionAdmission(self._limits)
        self._allows_plain = False
        self._untouched: dict[int, socket.socket] = {}
        """Those whose serving has not had its first turn."""
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._next_key = 0
        self._stack = AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._lines = PeerLines(log)

    @property
    def connections(self) -> int:
        """The number of established connections."""
        return len(self._admission)

    async def start(self, address: str, credentials: GetContext | None = None, *, allows_plain: bool = False) -> int:
        """Listen on `host:port`; returns the port, chosen by the system for 0. Raises Invalid when it is unavailable.

        With credentials all must speak TLS, unless `allows_plain` takes those in too that do not.
        """
        self._allows_plain = allows_plain
        host, _, port = address.rpartition(":")
        listening = self._bind(host.strip("[]"), int(port), address)
        self._stack.callback(listening.close)
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._accepting = supervised(self._group, "take connections", self._accept_all(listening, credentials))
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Close all connections."""
        tasks = [*self._serving.values(), *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_LIMIT_S)
        await self._stack.aclose()

    # Taking connections.

    async def _accept_all(self, listening: socket.socket, credentials: GetContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                self._report("", f"no connection can be taken: {error}")
                await asyncio.sleep(OUT_OF_FILES_PAUSE_S)
                continue
            self._enter(connection, address, credentials)

    def _enter(self, connection: socket.socket, address: tuple[Any, ...], credentials: GetContext | None) -> None:
        assert self._group is not None
        host = str(address[0])
        key, self._next_key = self._next_key, self._next_key + 1
        outcome = self._admission.enter(key, host)
        if isinstance(outcome, ConnectionRefused):
            self._metrics.count("rpc.refuse_conn")
            self._report(host, f"a connection is refused: {outcome.reason}")
            connection.close()
            return
        if outcome is not None:
            self._serving[outcome].cancel()
        text = f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
        self._untouched[key] = connection
        serving = supervised(self._group, "serve a connection", self._serve(key, text, credentials))
        self._serving[key] = serving
        serving.add_done_callback(lambda _: self._leave(key))

    def _leave(self, key: int) -> None:
        self._admission.leave(key)
        del self._serving[key]
        untouched = self._untouched.pop(key, None)
        if untouched is not None:
            untouched.close()

    # One connection.

    async def _serve(self, key: int, address: str, credentials: GetContext | None) -> None:
        wire, connection = SocketWire(), self._untouched.pop(key)
        try:
            hello, session = await self._greet(wire, connection, address, credentials)
        except (TimeoutError, OSError, YurtError) as error:
            self._metrics.count("rpc.fail_conn")
            self._report(address, f"a connection is refused: {str(error) or 'it did not say in time who it is'}")
            if isinstance(error, YurtError) and not isinstance(error, ConnectionLost):
                wire.write(encode_greeting(refusal(error)))
            wire.close()
            return
        except asyncio.CancelledError:
            wire.abort()
            raise
        self._admission.greet(key)
        self._metrics.count("rpc.accept_conn")
        wire.write(encode_greeting(self._welcome))
        rate = None if hello.role == SERVER_ROLE else self._limits.calls
        warn = partial(self._end_abuse, address)
        peer = Peer(wire, serves=session.serves, is_dialler=False, rate=rate, warn=warn)
        session.opened(peer)
        try:
            await peer.run()
        finally:
            session.closed(peer)

    async def _greet(
        self, wire: SocketWire, connection: socket.socket, address: str, credentials: GetContext | None
    ) -> tuple[Hello, PeerSession]:
        watch_for_silence(connection)
        loop, limit_s = asyncio.get_running_loop(), self._limits.handshake_s or None
        tls: dict[str, Any] = {}
        async with asyncio.timeout(limit_s):
            if credentials is not None and (not self._allows_plain or await begins_with_tls(connection)):
                send_alerts_on(connection)
                tls = {"ssl": credentials(), "ssl_handshake_timeout": limit_s, "ssl_shutdown_timeout": CLOSE_LIMIT_S}
            await loop.connect_accepted_socket(lambda: wire, connection, **tls)
            hello = decode_hello(await wire.greeting())
        return hello, self._accept(hello, Caller(address, names_in(wire.certificate), has_tls=bool(tls)))

    def _end_abuse(self, address: str, text: str) -> None:
        self._metrics.count("rpc.bad_message")
        self._report(address, text)

    def _report(self, address: str, text: str) -> None:
        self._lines.report(address, text, now_s=asyncio.get_running_loop().time())


def _bound(host: str, port: int, address: str) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
    except OSError:
        raise Invalid(
            f"cannot listen on {address} for other agents; is the port in use by another agent? "
            "Stop that one, or choose another port: `ports { rpc = ... }`, for servers `ports { serf = ... }`"
        ) from None
    return listening
