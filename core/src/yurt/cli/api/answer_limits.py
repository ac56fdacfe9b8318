"""Limits on the answers of an agent that is not trusted: their size, and the time until they are complete."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, NamedTuple

PIECE_BYTES = 64 * 1024


class AnswerLimits(NamedTuple):
    """The largest body, and the longest time from the request to the end of its answer."""

    bytes_max: int
    seconds_max: float


class AnswerTooLarge(OSError):
    """A body exceeds its limit."""


class AnswerTooSlow(OSError):
    """An answer is not complete in time."""


def response_with_deadline(ends: float) -> Any:
    """A `response_class` of a connection: reads of headers and body fail with AnswerTooSlow after `ends` (monotonic).

    The time-out of a socket bounds each read by itself, so an agent that sends a byte from time to time never ends.
    """

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(_DeadlineSocket(sock, ends), *arguments, **options)  # type: ignore[arg-type]

    return Response


class _DeadlineSocket:
    """The part of a socket that a response reads."""

    def __init__(self, sock: socket.socket, ends: float) -> None:
        self._socket = sock
        self._ends = ends

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Its reader."""
        return io.BufferedReader(_DeadlineReader(self._socket, self._ends))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, ends: float) -> None:
        self._socket = sock
        self._silence_s = sock.gettimeout()
        self._raw = sock.makefile("rb", buffering=0)
        self._ends = ends

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what comes before the deadline."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise AnswerTooSlow
        self._socket.settimeout(left if self._silence_s is None else min(left, self._silence_s))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            if time.monotonic() >= self._ends:
                raise AnswerTooSlow from None
            raise

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def read_bounded(response: http.client.HTTPResponse, bytes_max: int) -> bytes:
    """The body; raises AnswerTooLarge, or IncompleteRead for one that breaks off.

    The size that a chunk states is not trusted, as it may be huge or negative: only received bytes are counted.
    """
    body = bytearray()
    while piece := response.read1(PIECE_BYTES) if response.chunked else response.read(PIECE_BYTES):
        body += piece
        if len(body) > bytes_max:
            raise AnswerTooLarge(f"the answer is larger than {bytes_max} bytes")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return bytes(body)
