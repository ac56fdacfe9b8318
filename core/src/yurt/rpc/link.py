"""The gRPC adapter of the end that dials: one connection to one of several servers, made anew whenever it ends.

Whoever needs the connection waits a moment for it, so that a server's end is a short delay for its clients and no
error. Servers are tried in turn, the next one at once, all of them again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio

from yurt.rpc.channel import GREETING_LIMIT_S, METHOD, OPTIONS, SERVICE, decode_welcome, encode_greeting
from yurt.rpc.frames import Hello, Welcome, error_of
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError

log = logging.getLogger(__name__)

PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
PATIENCE_S = 10.0
"""How long a call waits for a connection before it fails."""


class Security(NamedTuple):
    """How servers are dialled: the credentials, made anew for each connection, and the name that a server shows."""

    credentials: Callable[[], grpc.ChannelCredentials]
    server_name: str


class Link:
    """The connection of an agent to its servers."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        *,
        hello: Callable[[], Hello],
        serves: Mapping[str, Served],
        env: Env,
        security: Security | None = None,
    ) -> None:
        self.addresses = addresses
        self.server = ""
        self.on_open: Callable[[], None] = lambda: None
        self._first = addresses
        self._hello = hello
        self._serves = serves
        self._env = env
        self._security = security
        self._peer: Peer | None = None
        self._open = asyncio.Event()
        self._problem = "no connection has been tried yet"

    @property
    def problem(self) -> str:
        """Why there is no connection, when there is none: the last thing that went wrong."""
        return self._problem

    def learn(self, addresses: tuple[str, ...]) -> None:
        """The servers, as they say themselves; those that the agent was told stay behind them."""
        self.addresses = tuple(dict.fromkeys((*addresses, *self._first)))

    async def peer(self) -> Peer:
        """The connection, once it stands; raises ConnectionLost when no server could be reached."""
        if self._peer is not None and not self._peer.is_open:
            self._peer = None
            self._open.clear()
        if self._peer is None:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._open.wait()
            except TimeoutError:
                raise ConnectionLost(f"no server can be reached: {self._problem}") from None
            return await self.peer()
        return self._peer

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        pause_s = PAUSE_FIRST_S
        while True:
            for address in self.addresses:
                if await self._use(address):
                    pause_s = PAUSE_FIRST_S
            await self._env.sleep(pause_s * (1 + self._env.random()))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _use(self, address: str) -> bool:
        """Whether a connection to the server stood; it has ended."""
        try:
            channel = self._channel(address)
        except YurtError as error:
            self._tell_problem(address, error)
            return False
        try:
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}")()
            try:
                welcome = await self._greet(call)
            except YurtError as error:
                self._tell_problem(address, error)
                return False
            await self._carry(call, address, welcome)
            return True
        finally:
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._security is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS)
        options = (*OPTIONS, ("grpc.ssl_target_name_override", self._security.server_name))
        return grpc.aio.secure_channel(address, self._security.credentials(), options=options)

    async def _greet(self, call: Any) -> Welcome:
        try:
            async with asyncio.timeout(GREETING_LIMIT_S):
                await call.write(encode_greeting(self._hello()))
                answer = await call.read()
        except TimeoutError:
            raise Unavailable(f"it did not answer within {GREETING_LIMIT_S:g} s") from None
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise Unavailable(await _reason(call, error)) from None
        if answer is grpc.aio.EOF:
            raise Unavailable("it ended the connection at once")
        welcome = decode_welcome(answer)
        if welcome.problem:
            raise error_of(welcome.kind, welcome.problem)
        return welcome

    def _tell_problem(self, address: str, error: YurtError) -> None:
        problem = f"{address}: {error}"
        if problem != self._problem:
            log.warning("server %s cannot be used: %s", address, error)
        self._problem = problem

    async def _carry(self, call: Any, address: str, welcome: Welcome) -> None:
        peer = Peer(send=_sender(call), serves=self._serves, is_dialler=True)
        self._peer, self.server = peer, welcome.name
        self._open.set()
        self.on_open()
        self._problem = "the connection has ended"
        log.info("connected to server %s at %s", welcome.name, address)
        try:
            await peer.run(_messages(call))
        finally:
            self._open.clear()
            self._peer, self.server = None, ""
            call.cancel()
        log.warning("the connection to server %s at %s has ended", welcome.name, address)


async def _reason(call: Any, error: Exception) -> str:
    """Why the transport could not connect, in its own words."""
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else await call.details()
    return str(details or error)


def _sender(call: Any) -> Callable[[bytes], Awaitable[None]]:
    async def send(message: bytes) -> None:
        try:
            await call.write(message)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise ConnectionLost(f"the connection to the other agent has ended: {error}") from None

    return send


async def _messages(call: Any) -> AsyncIterator[bytes]:
    while True:
        try:
            message = await call.read()
        except grpc.aio.AioRpcError:
            return
        if message is grpc.aio.EOF:
            return
        yield message
