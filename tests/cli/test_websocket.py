"""The command line's handshake for a websocket, with a server that refuses or is none."""

from __future__ import annotations

import socket
import threading

import pytest
from yurt.api.websocket import accept_of
from yurt.cli.api.websocket import switch


def answer_with(connection: socket.socket, answer: bytes) -> None:
    """Take a request, whatever it is, and answer."""
    assert connection.recv(65536)
    connection.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno such", (404, "no such", b"", "")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", (400, "", b"", "")),
        (b"HTTP/1.1 404 Not Found\r\nX-Yurt-Error: unknown-node\r\n\r\n", (404, "", b"", "unknown-node")),
    ],
)
def test_a_refusal_comes_with_its_text(answer: bytes, expected: tuple[int, str, bytes, str]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = threading.Thread(target=answer_with, args=(theirs, answer))
        server.start()
        assert switch(ours, "/x", "host", {}) == expected
        server.join()


@pytest.mark.parametrize("is_split", [False, True])
def test_a_refusal_after_the_upgrade_is_one_before_it(is_split: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)

    def refuse() -> None:
        key = theirs.recv(65536).decode().partition("Sec-WebSocket-Key: ")[2].partition("\r")[0]
        head = f"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {accept_of(key)}\r\n"
        frame = b"\x88\x09\x03\xf0no such"
        theirs.sendall(f"{head}X-Yurt-Error: unknown-node\r\n\r\n".encode() + frame[: 3 if is_split else 99])
        theirs.sendall(frame[3:] if is_split else b"")

    with ours, theirs:
        server = threading.Thread(target=refuse)
        server.start()
        assert switch(ours, "/x", "host", {}) == (404, "no such", b"", "unknown-node")
        server.join()


def test_a_server_that_does_not_know_the_key_is_no_websocket_server() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answer = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: nonsense\r\n\r\n"
        server = threading.Thread(target=answer_with, args=(theirs, answer))
        server.start()
        with pytest.raises(ConnectionResetError):
            switch(ours, "/x", "host", {})
        server.join()
