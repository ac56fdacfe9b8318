"""RFC 6455 websocket frames without IO: bytes in, messages out; and the keys of the handshake.

Both who asks the HTTP API (the command line) and who passes its websockets on between agents read and write them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from typing import NamedTuple

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
CONTINUED = 0x0
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
NORMAL = 1000


class Message(NamedTuple):
    """A whole message: its kind (TEXT, BINARY, CLOSE, PING, PONG) and its bytes."""

    kind: int
    data: bytes


class BrokenFrame(Exception):
    """The peer violates the protocol."""


def new_key() -> str:
    """A random key for a handshake."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """The `Sec-WebSocket-Accept` value for a key."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()


def encode(kind: int, data: bytes, *, mask: bytes) -> bytes:
    """A client's frame: unfragmented and masked."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
    return head + mask + masked(data, mask)


def masked(data: bytes, mask: bytes) -> bytes:
    """The bytes XORed with a mask of four bytes; a second call restores them."""
    if not data:
        return b""
    whole = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")


class WebSocketFrames:
    """Parses a server's bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts = b""
        self._kind = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete; raises BrokenFrame."""
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
