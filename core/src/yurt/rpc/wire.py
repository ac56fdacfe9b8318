"""Messages over one TCP connection, in plain text or TLS: each prefixed by its length in four bytes, big endian.

An empty message asks whether the other end is there; the end that was dialled answers it with one. What the kernel can
notice by itself, a machine that is gone or cut off, it notices within `SILENCE_S`, at no cost for us.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from yurt.rpc.frames import GREETING_BYTES_MAX, MESSAGE_BYTES_MAX
from yurt.sdk.errors import Reason, Unavailable

SILENCE_S = 4
"""A connection counts as lost when the other machine is silent for this long."""
PROBES = 3
_SIZE = struct.Struct(">I")
TLS_HANDSHAKE = 0x16
"""The first byte of a connection by TLS; that of a greeting is the high byte of a small size, 0."""


class ConnectionLost(Unavailable, reason=Reason.CONNECTION_LOST):
    """The connection ended during the call, which may or may not have been carried out."""


class WireReader(Protocol):
    """The callbacks of a wire."""

    def take(self, message: bytes) -> None:
        """A message; empty for a keep-alive or its answer."""
        ...

    def pause(self) -> None:
        """Stop writing: the other end has stopped reading."""
        ...

    def resume(self) -> None:
        """The other end reads again."""
        ...

    def lose(self) -> None:
        """The connection has ended."""
        ...


class Wire(Protocol):
    """A connection as a peer needs it."""

    def attach(self, reader: WireReader) -> None:
        """Pass all messages, buffered ones first, to `reader`."""
        ...

    def write(self, message: bytes) -> None:
        """Send a message; no effect after the connection has ended."""
        ...

    def read_on(self, reads: bool) -> None:
        """Resume or pause reading; the other end then keeps what it sends."""
        ...

    def close(self) -> None:
        """Close the connection after sending buffered data."""
        ...


class SocketWire(asyncio.Protocol):
    """A wire over a socket. Until a reader is attached it accepts one small message, the greeting, and no more."""

    def __init__(self) -> None:
        self.arrived_s = 0.0
        """When something came last, or the connection was made, on the loop's clock."""
        self._clock: Callable[[], float] = float
        self._bytes_max = GREETING_BYTES_MAX
        self._transport: asyncio.Transport | None = None
        self._reader: WireReader | None = None
        self._early: deque[bytes] = deque()
        self._has_early = asyncio.Event()
        self._rest = bytearray()
        self._needed_bytes = _SIZE.size
        self._reads = True
        self._is_lost = False
        self._problem = "it ended the connection without a word"
        self.alert = ""
        """OpenSSL's name of the TLS alert by which the other end ended the connection."""

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established, including the TLS handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._clock = asyncio.get_running_loop().time
        self.arrived_s = self._clock()

    def data_received(self, data: bytes) -> None:
        """Split received bytes into messages."""
        self.arrived_s = self._clock()
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed_bytes:
                return
            data, self._rest = bytes(self._rest), bytearray()
        begin, end = 0, len(data)
        self._needed_bytes = _SIZE.size
        while end - begin >= _SIZE.size and not self._is_lost:
            (size,) = _SIZE.unpack_from(data, begin)
            if size > self._bytes_max:
                if self._reader is None and data[begin] == TLS_HANDSHAKE:
                    self._problem = "it speaks TLS, and `tls { rpc = true }` is not set here"
                self.abort()
                return
            self._needed_bytes = _SIZE.size + size
            if end - begin < self._needed_bytes:
                break
            self._deliver(data[begin + _SIZE.size : begin + self._needed_bytes])
            begin += self._needed_bytes
            self._needed_bytes = _SIZE.size
        if begin < end:
            self._rest += data[begin:]

    def pause_writing(self) -> None:
        """The other end has stopped reading."""
        if self._reader is not None:
            self._reader.pause()

    def resume_writing(self) -> None:
        """The other end reads again."""
        if self._reader is not None:
            self._reader.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        if isinstance(error, ssl.SSLError):
            self.alert = error.reason or ""
        self._is_lost = True
        self._has_early.set()
        if self._reader is not None:
            self._reader.lose()

    # What the agent calls.

    async def greeting(self) -> bytes:
        """The first message; raises ConnectionLost when none arrives."""
        await self._has_early.wait()
        if not self._early:
            raise ConnectionLost(self._problem)
        return self._early.popleft()

    def attach(self, reader: WireReader) -> None:
        """Start reading."""
        self._reader, self._bytes_max = reader, MESSAGE_BYTES_MAX
        while self._early:
            reader.take(self._early.popleft())
        if self._is_lost:
            reader.lose()
        else:
            self.read_on(True)

    def write(self, message: bytes) -> None:
        """Send a message."""
        if not self._is_lost and self._transport is not None:
            self._transport.write(_SIZE.pack(len(message)) + message)

    def read_on(self, reads: bool) -> None:
        """Resume or pause reading."""
        if reads == self._reads or self._is_lost or self._transport is None or self._transport.is_closing():
            return
        self._reads = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close gracefully."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, unsent data included."""
        self._is_lost = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def certificate(self) -> Any:
        """The other end's certificate in `ssl`'s form; None without TLS or without one."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def _deliver(self, message: bytes) -> None:
        if self._reader is not None:
            self._reader.take(message)
            return
        self._early.append(message)
        self._has_early.set()
        self.read_on(False)


async def begins_with_tls(connection: socket.socket) -> bool:
    """Whether a connection's first byte, which is only peeked at, begins TLS rather than a greeting."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
        loop.remove_reader(connection.fileno())
        return connection.recv(1, socket.MSG_PEEK) == bytes([TLS_HANDSHAKE])
    except BaseException:
        loop.remove_reader(connection.fileno())
        connection.close()
        raise


def watch_for_silence(connection: socket.socket) -> None:
    """Have the kernel end the connection after `SILENCE_S` without a packet from the other machine."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_s = SILENCE_S - PROBES
    for name, value in (
        ("TCP_KEEPIDLE", idle_s), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", PROBES), ("TCP_USER_TIMEOUT", SILENCE_S * 1000),
    ):  # fmt: skip
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def names_in(certificate: Any) -> tuple[str, ...]:
    """The names in a certificate in `ssl`'s form: the subject's common name, then its alternative names."""
    if not certificate:
        return ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return (*common, *(value for _, value in certificate.get("subjectAltName", ())))
