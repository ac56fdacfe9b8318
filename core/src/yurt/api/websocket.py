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
    """Parses a peer's bytes into messages: those of a server, or with `is_masked` those of a client."""

    def __init__(self, *, is_masked: bool = False, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._is_masked = is_masked
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._parts = b""
        self._kind = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete; raises BrokenFrame."""
        self._buffer += data
        found = []
        while (message := self.next_message()) is not None:
            found.append(message)
        return found

    def next_message(self, data: bytes = b"") -> Message | None:
        """The first message that these bytes and those before complete; raises BrokenFrame."""
        self._buffer += data
        while (frame := self._take()) is not None:
            is_last, kind, body = frame
            if kind in (CLOSE, PING, PONG):
                return Message(kind, body)
            self._kind = kind or self._kind
            self._parts += body
            if len(self._parts) > self._bytes_max:
                raise BrokenFrame(f"a message has more than {self._bytes_max} bytes")
            if is_last:
                found, self._parts = Message(self._kind, self._parts), b""
                return found
        return None

    def take_rest(self) -> bytes:
        """The bytes behind the last message, which are then forgotten."""
        found = bytes(self._buffer)
        self._buffer.clear()
        return found

    def _take(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if bool(second & 0x80) != self._is_masked or first & 0x70:
            sender = "client" if self._is_masked else "server"
            raise BrokenFrame(f"the {sender}'s frames are wrongly masked or have reserved bits set (RFC 6455)")
        size, start = second & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            start += width
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size > self._bytes_max:
            raise BrokenFrame(f"a message has more than {self._bytes_max} bytes")
        mask_at, start = start, start + (4 if self._is_masked else 0)
        if len(buffer) < start + size:
            return None
        body, mask = bytes(buffer[start : start + size]), bytes(buffer[mask_at:start])
        del buffer[: start + size]
        return bool(first & 0x80), first & 0x0F, masked(body, mask) if mask else body
