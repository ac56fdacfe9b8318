"""A websocket for the command line: RFC 6455 on a plain socket, without blocking, by the standard library alone.

`Frames` is the protocol without a socket: bytes in, messages out. `WebSocket` puts it on one and never waits: whoever
uses it waits for the socket (`fileno`, `wants_write`) together with its other sources, so that input and output cannot
hold each other up.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import ssl
import struct
from typing import NamedTuple

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
CONTINUED = 0x0
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
READ_SIZE = 64 * 1024
NORMAL, ABNORMAL = 1000, 1006


class Message(NamedTuple):
    """A whole message: its kind (TEXT, BINARY, CLOSE, PING, PONG) and its bytes."""

    kind: int
    data: bytes


class BrokenFrame(Exception):
    """The peer does not keep the protocol."""


def new_key() -> str:
    """A random key for a handshake."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """What a server answers to a key."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()


def encode(kind: int, data: bytes, *, mask: bytes) -> bytes:
    """A frame as a client sends it: whole, and masked."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
    return head + mask + masked(data, mask)


def masked(data: bytes, mask: bytes) -> bytes:
    """The bytes under a mask of four; the same call takes it off again."""
    if not data:
        return b""
    whole = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")


class Frames:
    """Makes messages of a server's bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts = b""
        self._kind = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now; raises BrokenFrame."""
        self._buffer += data
        found = []
        while (frame := self._take()) is not None:
            is_last, kind, body = frame
            if kind in (CLOSE, PING, PONG):
                found.append(Message(kind, body))
                continue
            self._kind = kind or self._kind
            self._parts += body
            if len(self._parts) > MESSAGE_BYTES_MAX:
                raise BrokenFrame("a message is too long")
            if is_last:
                found.append(Message(self._kind, self._parts))
                self._parts = b""
        return found

    def _take(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if second & 0x80 or first & 0x70:
            raise BrokenFrame("the server's frames are not as RFC 6455 wants them")
        size, start = second & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            start += width
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size > MESSAGE_BYTES_MAX:
            raise BrokenFrame("a frame is too long")
        if len(buffer) < start + size:
            return None
        body = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return bool(first & 0x80), first & 0x0F, body


class WebSocket:
    """An open websocket on a socket that does not block."""

    def __init__(self, sock: socket.socket, first: bytes = b"") -> None:
        sock.setblocking(False)
        self._socket = sock
        self._frames = Frames()
        self._outgoing = bytearray()
        self._first = first
        self.close_code = 0
        self.close_reason = ""

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._outgoing)

    @property
    def has_more(self) -> bool:
        """Whether bytes have come that no wait for the descriptor would tell."""
        return bool(self._first) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def send(self, text: str) -> None:
        """Send a text as soon as the peer takes it."""
        self._put(TEXT, text.encode())

    def close_with(self, code: int) -> None:
        """Say goodbye."""
        self._put(CLOSE, struct.pack("!H", code))

    def _put(self, kind: int, data: bytes) -> None:
        self._outgoing += encode(kind, data, mask=os.urandom(4))
        self.flush()

    def flush(self) -> None:
        """Send what the peer takes now."""
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[:READ_SIZE])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._outgoing.clear()
                return
            del self._outgoing[:sent]

    def receive(self) -> list[str] | None:
        """The texts that have come; None when the peer has closed, and why stands in `close_code`."""
        if self.close_code:
            return None
        data, self._first = self._first, b""
        try:
            data = data or self._socket.recv(READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return []
        except OSError:
            data = b""
        if not data:
            self.close_code = self.close_code or ABNORMAL
            return None
        texts = []
        for message in self._frames.feed(data):
            if message.kind == PING:
                self._put(PONG, message.data)
            elif message.kind == CLOSE:
                self.close_code = int.from_bytes(message.data[:2], "big") or NORMAL
                self.close_reason = message.data[2:].decode(errors="replace")
                self._put(CLOSE, message.data[:2])
            elif message.kind in (TEXT, BINARY):
                texts.append(message.data.decode(errors="replace"))
        return None if self.close_code and not texts else texts

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def switch(sock: socket.socket, target: str, host: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
    """Ask for a websocket: the answer's status, its body where it refuses, and what came behind its head."""
    key = new_key()
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(READ_SIZE)
        if not piece or len(data) > HEAD_BYTES_MAX:
            raise ConnectionResetError("the connection was closed during the handshake")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *fields = head.decode(errors="replace").split("\r\n")
    named = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    status = int(first.split()[1])
    if status != 101:
        length = named.get("content-length", "")
        left = min(int(length), HEAD_BYTES_MAX) - len(rest) if length.isdigit() else 0
        while left > 0 and (piece := sock.recv(left)):
            rest, left = rest + piece, left - len(piece)
        return status, rest.decode(errors="replace").strip(), b""
    if named.get("sec-websocket-accept") != accept_of(key):
        raise ConnectionResetError("the peer is no websocket server")
    return status, "", rest
