"""The client end of a websocket on a non-blocking socket, with the standard library only.

The caller waits for the socket (`fileno`, `has_more`) together with its other sources, so that input and output
cannot hold each other up.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct

from yurt.api.websocket import BINARY, CLOSE, NORMAL, PING, PONG, TEXT, WebSocketFrames, accept_of, encode, new_key
from yurt.sdk.errors import ERROR_HEADER, Reason, reason_of

HEAD_BYTES_MAX = 64 * 1024
READ_SIZE = 64 * 1024
ABNORMAL = 1006
"""The code of a connection that ended without a close frame."""


class WebSocket:
    """An open websocket on a socket that does not block."""

    def __init__(self, sock: socket.socket, first: bytes = b"") -> None:
        sock.setblocking(False)
        self._socket = sock
        self._frames = WebSocketFrames()
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
        """Whether received bytes are buffered, which waiting for the descriptor would not show."""
        return bool(self._first) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def send(self, text: str) -> None:
        """Send a text as soon as the peer takes it."""
        self._put(TEXT, text.encode())

    def close_with(self, code: int) -> None:
        """Send a close frame."""
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
        """The texts that have arrived; None when the peer has closed, with the reason in `close_code`."""
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


def switch(sock: socket.socket, target: str, host: str, headers: dict[str, str]) -> tuple[int, str, bytes, str]:
    """Ask for a websocket: the answer's status, its text where it refuses, what came behind its head, and the error's
    reason. An agent that refuses after the upgrade names the reason in its head: it stands for the status.
    """
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
        return status, rest.decode(errors="replace").strip(), b"", named.get(ERROR_HEADER.lower(), "")
    if named.get("sec-websocket-accept") != accept_of(key):
        raise ConnectionResetError("the peer is not a websocket server")
    code = named.get(ERROR_HEADER.lower(), "")
    if code:
        return (reason_of(code) or Reason.FAILED).status, _reason_of_close(sock, rest), b"", code
    return status, "", rest, ""


def _reason_of_close(sock: socket.socket, first: bytes) -> str:
    """The reason with which the peer closes at once; one too long for a close frame came before it."""
    frames, data, long = WebSocketFrames(), first or sock.recv(READ_SIZE), ""
    while data:
        for message in frames.feed(data):
            if message.kind == TEXT:
                long += _error_output(message.data)
            elif message.kind == CLOSE:
                sock.sendall(encode(CLOSE, message.data[:2], mask=os.urandom(4)))
                return long.strip() or message.data[2:].decode(errors="replace")
        data = sock.recv(READ_SIZE)
    raise ConnectionResetError("the connection was closed during the handshake")


def _error_output(frame: bytes) -> str:
    """What a frame holds of standard error."""
    try:
        return base64.b64decode(json.loads(frame)["stderr"]["data"]).decode(errors="replace")
    except (ValueError, KeyError, TypeError):
        return ""
