"""A load generator for the HTTP API: many connections in one thread, each with one request at a time.

A connection costs some 15 µs of this process for each answer, so it seldom takes the processor from the server, which
runs on another core.
"""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import uvloop

CONNECT_AT_ONCE: Final = 200
LIMIT_S: Final = 120.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Load(NamedTuple):
    """What some connections got in some time."""

    answers: int
    seconds: float
    p99_ms: float
    body_bytes: int
    """Of the last answer."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


class Connection(asyncio.Protocol):
    """One connection; `on_answer` is called when an answer has come whole."""

    def __init__(self, on_answer: Callable[[Connection], None], on_data: Callable[[bytes], None] | None = None) -> None:
        self._on_answer = on_answer
        self._on_data = on_data
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._left = -1
        self.sent_s = 0.0
        self.body_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment] # uvloop's are no subclass of asyncio's

    def ask(self, request: bytes) -> None:
        """Send a request; the one before it was answered."""
        assert self._transport is not None
        self._head, self._left = b"", -1
        self.sent_s = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """A part of an answer; raises RuntimeError for a refusal."""
        if self._on_data is not None:
            self._on_data(data)
            return
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            if not self._head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(self._head[:500].decode(errors="replace"))
            found = _LENGTH.search(self._head, 0, end + 2)
            assert found is not None, "an answer of a read has a length"
            self.body_bytes = int(found[1])
            self._left = self.body_bytes - (len(self._head) - end - 4)
        else:
            self._left -= len(data)
        if self._left == 0:
            self._on_answer(self)

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.abort()


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process, and of those that it starts, as far as that goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def load(port: int, requests: Sequence[bytes], *, connections: int, seconds: float) -> Load:
    """Send the requests in turn over all connections for some time."""
    return uvloop.run(_load(port, requests, connections, seconds))


async def _load(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Load:
    took: list[float] = []
    done = asyncio.get_running_loop().create_future()
    number, waiting, end_s = 0, connections, 0.0

    def answered(connection: Connection) -> None:
        nonlocal number, waiting
        now = time.perf_counter()
        took.append(now - connection.sent_s)
        if now < end_s:
            number += 1
            connection.ask(requests[number % len(requests)])
            return
        waiting -= 1
        if not waiting:
            done.set_result(None)

    opened = await connect(port, connections, lambda: Connection(answered))
    begin_s = time.perf_counter()
    end_s = begin_s + seconds
    for connection in opened:
        number += 1
        connection.ask(requests[number % len(requests)])
    async with asyncio.timeout(LIMIT_S):
        await done
    passed_s = time.perf_counter() - begin_s
    for connection in opened:
        connection.close()
    took.sort()
    return Load(len(took), passed_s, took[int(len(took) * 0.99)] * 1000, opened[0].body_bytes)


async def connect(port: int, count: int, make: Callable[[], Connection]) -> list[Connection]:
    """Some connections, a few at a time, since a listening socket has a short queue."""
    loop, opened = asyncio.get_running_loop(), list[Connection]()
    while len(opened) < count:
        some = min(CONNECT_AT_ONCE, count - len(opened))
        made = await asyncio.gather(*(loop.create_connection(make, "127.0.0.1", port) for _ in range(some)))
        opened += [protocol for _, protocol in made]
    return opened


class Wake(NamedTuple):
    """What many waiting connections cost: bytes of the server's memory for each, seconds until all had an answer."""

    bytes_each: float
    all_awake_s: float


def wake(port: int, request: bytes, count: int, *, memory: Callable[[], int], change: Callable[[], None]) -> Wake:
    """Have connections wait with a blocking query each, change what they wait for, and wait for their answers."""
    return uvloop.run(_wake(port, request, count, memory, change, is_stream=False))


def wake_readers(
    port: int, request: bytes, count: int, *, memory: Callable[[], int], change: Callable[[], None]
) -> Wake:
    """The same for readers of a stream, whose first event they wait for."""
    return uvloop.run(_wake(port, request, count, memory, change, is_stream=True))


async def _wake(
    port: int, request: bytes, count: int, memory: Callable[[], int], change: Callable[[], None], *, is_stream: bool
) -> Wake:
    left, done = count, asyncio.get_running_loop().create_future()
    changing = asyncio.Event()

    def answered(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set_result(None)

    def make() -> Connection:
        return Connection(answered, _first_event(answered, changing) if is_stream else None)

    before = memory()
    opened = await connect(port, count, make)
    for connection in opened:
        connection.ask(request)
    await _settled(port)
    waiting = memory()
    changing.set()
    begin_s = time.perf_counter()
    await asyncio.to_thread(change)
    async with asyncio.timeout(LIMIT_S):
        await done
    passed_s = time.perf_counter() - begin_s
    for connection in opened:
        connection.close()
    return Wake((waiting - before) / count, passed_s)


def _first_event(answered: Callable[[object], None], changing: asyncio.Event) -> Callable[[bytes], None]:
    """Tells of the first event after the change; a stream begins with the newest event before it."""
    is_over = False

    def look(data: bytes) -> None:
        nonlocal is_over
        if b'"Events"' in data and changing.is_set() and not is_over:
            is_over = True
            answered(None)

    return look


async def _settled(port: int) -> None:
    """Wait until the server has taken all requests in: it answers a read that was sent behind them at once again."""
    loop = asyncio.get_running_loop()
    quick = 0
    async with asyncio.timeout(LIMIT_S):
        while quick < 3:
            answer = loop.create_future()
            (connection,) = await connect(port, 1, lambda answer=answer: Connection(answer.set_result))  # type: ignore[misc]
            connection.ask(b"GET /v1/status/leader HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await answer
            quick = quick + 1 if time.perf_counter() - connection.sent_s < 0.05 else 0
            connection.close()
            await asyncio.sleep(0.2)
