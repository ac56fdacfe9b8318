"""The gRPC adapter of the end that is dialled: every agent that connects becomes a peer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio

from yurt.rpc.channel import GREETING_LIMIT_S, METHOD, OPTIONS, SERVICE, decode_hello, encode_greeting
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.sdk.errors import Invalid, Unavailable, YurtError

log = logging.getLogger(__name__)

CLOSE_LIMIT_S = 1.0


class Caller(NamedTuple):
    """Who dialled: its address, and the names in its certificate when it showed one."""

    address: str
    names: tuple[str, ...] = ()


class Session(NamedTuple):
    """What a connection offers, and what to do when it stands and when it has ended."""

    serves: Mapping[str, Served]
    opened: Callable[[Peer], None]
    closed: Callable[[Peer], None]


Accept = Callable[[Hello, Caller], Session]
"""Decides about a connection; raises a YurtError to refuse it."""


class Listener:
    """Takes connections of agents on one address."""

    def __init__(self, *, accept: Accept, welcome: Welcome) -> None:
        self._accept = accept
        self._welcome = welcome
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on `host:port`; the port, which the system chooses for 0. Raises Invalid when it cannot be had."""
        server = grpc.aio.server(options=OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._connected)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise Invalid(f"cannot listen on {address} for other agents; is the port in use? `ports {{ rpc = ... }}`")
        await server.start()
        self._server = server
        return int(port)

    async def stop(self) -> None:
        """End all connections."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(CLOSE_LIMIT_S)

    async def _connected(self, requests: AsyncIterator[bytes], context: Any) -> None:
        caller = Caller(address=context.peer(), names=_certified_names(context))
        try:
            hello = await _greeted(requests)
            session = self._accept(hello, caller)
        except YurtError as error:
            log.warning("a connection from %s is refused: %s", caller.address, error)
            await context.write(encode_greeting(Welcome(problem=str(error), kind=type(error).__name__)))
            return
        await context.write(encode_greeting(self._welcome))
        peer = Peer(send=_sender(context), serves=session.serves, is_dialler=False)
        session.opened(peer)
        try:
            await peer.run(requests)
        finally:
            session.closed(peer)


async def _greeted(requests: AsyncIterator[bytes]) -> Hello:
    try:
        async with asyncio.timeout(GREETING_LIMIT_S):
            return decode_hello(await anext(requests))
    except (TimeoutError, StopAsyncIteration):
        raise Unavailable("the connection ended before the agent said who it is") from None


def _sender(context: Any) -> Callable[[bytes], Awaitable[None]]:
    async def send(message: bytes) -> None:
        try:
            await context.write(message)
        except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError) as error:
            raise ConnectionLost(f"the connection to the other agent has ended: {error}") from None

    return send


def _certified_names(context: Any) -> tuple[str, ...]:
    """The subject's names in the caller's certificate, which the transport has checked."""
    found = context.auth_context()
    names = (*found.get("x509_common_name", ()), *found.get("x509_subject_alternative_name", ()))
    return tuple(name.decode("utf-8", "replace") for name in names)
