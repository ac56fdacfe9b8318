"""The HTTP API of another agent as a port: requests and responses travel in parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, Protocol

from yurt.access import Origin
from yurt.access.calls import CallerKind, allowed
from yurt.sdk.value import Value, no_entries

PIECE_BYTES: Final = 64 * 1024
"""A body travels in pieces of this size."""


class ApiRequest(Value):
    """A request as it was received: its path with the query, undecoded; the body is sent separately.

    With `is_socket` it asks for a websocket, and the body is what its caller sends there, as frames.
    """

    method: str
    path: str
    headers: Mapping[str, str] = no_entries()
    has_body: bool = False
    is_socket: bool = False
    origin: Origin = Origin()
    """The address of the caller, as the forwarding agent sees it or received it."""


class ApiPart(Value):
    """A part of an answer: first the status and the headers, then pieces of the body."""

    status: int = 0
    headers: Mapping[str, str] = no_entries()
    data: bytes = b""


async def no_body() -> AsyncGenerator[bytes]:
    """The body of a request without one."""
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


class ApiPort(Protocol):
    """The HTTP API of a server, as seen from another agent."""

    @allowed(CallerKind.NODE, CallerKind.SERVER, CallerKind.REGION)
    def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        """The answer in parts; raises Unavailable when the agent cannot be reached."""
        ...
