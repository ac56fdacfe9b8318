"""Many clients in one process as a server sees them: a connection each, speaking the agents' protocol, and next to no
work of their own, so that the server is the limit.

    python -m bench.cheap_clients PORT FIRST COUNT

They are told by lines on standard input what to do, and answer each with a line of figures: `begin` (nothing, once
they are there), `register` (connect and register, some at a time), `ready` (a heartbeat each), `follow` (ask for
allocations, as a client always does), `beat SECONDS` (heartbeats as fast as the server answers), `hold SECONDS` (live
as clients do: heartbeats when they are due, and the question whether the server is there when nothing was said).
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import uvloop
from yurt.client.ports import ServerPort
from yurt.rpc import frames
from yurt.rpc.contract import contract_of
from yurt.rpc.frames import Answer, Ask, Failure, Hello, Welcome
from yurt.rpc.greeting import encode_greeting
from yurt.rpc.silence import IDLE_S
from yurt.sdk.value import replace
from yurt.structs.node import Node
from yurt.structs.rpc import NodeReply, RegisterNodeRequest
from yurt.structs.status import NODE_INIT, NODE_READY

from bench.scheduler import node

IN_FLIGHT = 32
"""Calls under way in each process."""
PULL_S = 300.0
STEP_LIMIT_S = 300.0
SHARE_OF_TTL = 0.75
SERVER_PORT = contract_of(ServerPort)
SIZE = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_reply = msgspec.msgpack.Decoder(NodeReply)
_welcome = msgspec.msgpack.Decoder(Welcome)


class CheapClient(asyncio.Protocol):
    """One node and its connection. One call at a time, besides the one that follows its allocations."""

    def __init__(self, given: Node) -> None:
        self.node = given
        self.due = 0.0
        self.answers = 0
        self._transport: Any = None
        self._rest = b""
        self._is_welcome = False
        self._index = 0
        self._next_id = 1
        self._call_id = 0
        self._waiting: asyncio.Future[bytes] | None = None
        self._beat = _request("heartbeat", node_id=given.id, status=NODE_READY)

    # What the loop calls.

    def connection_made(self, transport: Any) -> None:
        """Say who it is."""
        self._transport = transport
        hello = Hello(node_id=self.node.id, secret_id=self.node.secret_id, region="global", name=self.node.name)
        self.write(encode_greeting(hello))

    def data_received(self, data: bytes) -> None:
        """Take the answers."""
        data = self._rest + data
        while len(data) >= SIZE.size:
            end = SIZE.size + SIZE.unpack_from(data)[0]
            if len(data) < end:
                break
            message, data = data[SIZE.size : end], data[end:]
            self._take(message)
        self._rest = data

    def connection_lost(self, _: Exception | None) -> None:
        """A client that lost its connection is a failure of the measurement."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(f"{self.node.name} lost its connection"))

    def _take(self, message: bytes) -> None:
        self.answers += 1
        if not self._is_welcome:
            problem = _welcome.decode(message).problem
            self._is_welcome = True
            self._settle(ConnectionError(problem) if problem else message)
            return
        for frame in frames.decode(message) if message else ():
            if isinstance(frame, Answer) and frame.id == self._call_id:
                self._settle(frame.answer)
            elif isinstance(frame, Failure):
                self._settle(ConnectionError(frame.text))

    def _settle(self, outcome: bytes | Exception) -> None:
        if self._waiting is None or self._waiting.done():
            return
        if isinstance(outcome, Exception):
            self._waiting.set_exception(outcome)
        else:
            self._waiting.set_result(outcome)

    # What the measurement calls.

    def write(self, message: bytes) -> None:
        """Send a message."""
        self._transport.write(SIZE.pack(len(message)) + message)

    async def call(self, method: str, request: bytes) -> bytes:
        """One call with its answer."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._call_id = self._ask(method, request)
        return await self._waiting

    def _ask(self, method: str, request: bytes) -> int:
        call_id, self._next_id = self._next_id, self._next_id + 2
        self.write(frames.encode([Ask(call_id, f"server.{method}", request)]))
        return call_id

    async def register(self, port: int) -> None:
        """Connect, and register as initializing."""
        welcome = self._waiting = asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)
        await welcome
        request = _request("register_node", request=RegisterNodeRequest(node=self.node))
        self._index = _reply.decode(await self.call("register_node", request)).index

    async def beat(self) -> NodeReply:
        """A heartbeat as ready."""
        reply = _reply.decode(await self.call("heartbeat", self._beat))
        self.due = time.monotonic() + reply.heartbeat_ttl_s * SHARE_OF_TTL
        return reply

    async def follow(self) -> None:
        """Leave a question for allocations with the server."""
        request = _request("pull_allocs", node_id=self.node.id, min_index=self._index, timeout_s=PULL_S)
        self._ask("pull_allocs", request)


def _request(name: str, **given: Any) -> bytes:
    return _encode(SERVER_PORT[name].pack((), given))


class Process:
    """The clients of this process."""

    def __init__(self, port: int, first: int, count: int) -> None:
        self._port = port
        self._clients = [CheapClient(given(number)) for number in range(first, first + count)]

    async def carry_out(self, line: str) -> dict[str, Any]:
        """One line; figures of what it took."""
        word, *rest = line.split()
        match word:
            case "begin":
                return {}
            case "register":
                return await self._all(lambda client: client.register(self._port))
            case "ready":
                return await self._all(CheapClient.beat)
            case "follow":
                return await self._all(CheapClient.follow)
            case "beat":
                return await self._beat(float(rest[0]))
            case "hold":
                return await self._hold(float(rest[0]))
        raise ValueError(line)

    async def _all(self, step: Callable[[CheapClient], Awaitable[Any]]) -> dict[str, Any]:
        free = asyncio.Semaphore(IN_FLIGHT)

        async def one(client: CheapClient) -> None:
            async with free:
                await step(client)

        async with asyncio.timeout(STEP_LIMIT_S):
            await asyncio.gather(*(one(client) for client in self._clients))
        return {}

    async def _beat(self, seconds: float) -> dict[str, Any]:
        delays: list[float] = []
        end = time.perf_counter() + seconds
        share = max(1, len(self._clients) // IN_FLIGHT)

        async def beats(mine: Sequence[CheapClient]) -> None:
            number = 0
            while (begin := time.perf_counter()) < end:
                await mine[number % len(mine)].beat()
                delays.append(time.perf_counter() - begin)
                number += 1

        parts = [self._clients[begin : begin + share] for begin in range(0, len(self._clients), share)]
        await asyncio.gather(*(beats(part) for part in parts))
        return figures(delays)

    async def _hold(self, seconds: float) -> dict[str, Any]:
        delays: list[float] = []
        end = time.monotonic() + seconds

        async def live(client: CheapClient) -> None:
            heard = -1
            while (now := time.monotonic()) < end:
                if now >= client.due:
                    await client.beat()
                    delays.append(time.monotonic() - now)
                elif client.answers == heard:
                    client.write(b"")
                heard = client.answers
                await asyncio.sleep(min(IDLE_S, max(0.0, client.due - now)))

        await asyncio.gather(*(live(client) for client in self._clients))
        return figures(delays)


def given(number: int) -> Node:
    """A node as a client registers it."""
    return replace(node(number, 0), secret_id=f"secret-{number}", status=NODE_INIT)


def figures(delays: Sequence[float]) -> dict[str, Any]:
    """How many there were, and how long they took in milliseconds."""
    ordered = sorted(delays) or [0.0]
    return {
        "count": len(delays),
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
    }


async def serve(port: int, first: int, count: int) -> None:
    """Carry out lines until there are no more."""
    process = Process(port, first, count)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await process.carry_out(line.strip())), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(*map(int, sys.argv[1:4])))
