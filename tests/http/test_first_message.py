"""Of an unknown caller nothing is kept but its first message; the rest waits, or is dropped."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yurt.api.websocket import BINARY, CLOSE, PING, TEXT, BrokenFrame, Message, encode
from yurt.http.edge.first_message import FIRST_BYTES_MAX, HELD_BYTES_MAX, FirstMessageGate, FirstMessageSocket
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.runtime.env import RealEnv

MASK = b"abcd"


class Connection:
    """The transport and the parser of a connection."""

    def __init__(self) -> None:
        self.transport: Any = self
        self.is_reading = True
        self.parsed = b""
        self.is_ended = False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def force_close(self) -> None:
        self.is_ended = True

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.parsed += data
        return False, b""

    def feed_eof(self) -> None:
        self.is_ended = True


class Scene:
    """A gate before a connection."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.gate = FirstMessageGate(self.connection)
        self.gate.attach(self.connection)

    def feed(self, *frames: bytes, size: int = 1 << 20) -> None:
        data = b"".join(frames)
        for start in range(0, len(data), size):
            assert self.gate.feed_data(data[start : start + size]) == (False, b"")

    @property
    def first(self) -> Any:
        return self.gate.first.result() if self.gate.first.done() else None


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def frame(kind: int, data: bytes) -> bytes:
    return encode(kind, data, mask=MASK)


FIRST = frame(TEXT, b"{}")
INPUT = frame(BINARY, b"x" * 100_000)


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
async def test_the_first_message_stops_reading_until_its_sender_is_admitted(scene: Scene, size: int) -> None:
    scene.feed(frame(PING, b"?"), FIRST, size=size)
    assert scene.first == Message(TEXT, b"{}")
    assert not scene.connection.is_reading
    scene.feed(INPUT)  # it was in the same read
    assert scene.connection.parsed == b""
    scene.gate.admit()
    assert (scene.connection.parsed, scene.connection.is_reading) == (INPUT, True)
    scene.feed(INPUT)
    assert scene.connection.parsed == INPUT + INPUT


@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"x" * (FIRST_BYTES_MAX + 1))[:14],
        (b"\x01" + frame(TEXT, b"x" * 5000)[1:]) + (b"\x00" + frame(TEXT, b"x" * 5000)[1:]),
        b"\x81\x02{}",
        b"\xf1\x82....",
    ],
)
async def test_too_much_or_no_frame_stops_reading(scene: Scene, data: bytes) -> None:
    scene.feed(data)
    assert isinstance(scene.first, BrokenFrame)
    assert not scene.connection.is_reading


async def test_of_a_refused_caller_only_the_close_frame_is_passed_on(scene: Scene) -> None:
    scene.feed(FIRST, frame(TEXT, b"rm"))
    scene.gate.refuse()
    scene.feed(frame(TEXT, b"-rf"))
    assert (scene.connection.parsed, scene.connection.is_reading) == (b"", True)
    scene.feed(frame(CLOSE, b"\x03\xe8"))
    assert scene.connection.parsed == encode(CLOSE, b"\x03\xe8", mask=bytes(4))


async def test_of_a_refused_caller_large_messages_are_dropped(scene: Scene) -> None:
    scene.feed(FIRST)
    scene.gate.refuse()
    for _ in range(20):
        scene.feed(INPUT)
    assert scene.connection.parsed == b""
    assert len(scene.gate._frames.take_rest()) + len(scene.gate._held) <= FIRST_BYTES_MAX


async def test_a_caller_that_leaves_has_closed(scene: Scene) -> None:
    scene.gate.feed_eof()
    assert (scene.first, scene.connection.is_ended) == (Message(CLOSE, b""), True)
    await asyncio.sleep(0)


async def test_a_close_frame_as_the_first_message_reaches_the_reader_that_waits_for_it(scene: Scene) -> None:
    scene.feed(frame(CLOSE, b"\x03\xe9"))
    assert scene.first == Message(CLOSE, b"\x03\xe9")
    scene.gate.refuse()
    assert scene.connection.parsed == encode(CLOSE, b"\x03\xe9", mask=bytes(4))


async def test_what_comes_after_the_waiting_was_cancelled_does_no_harm(scene: Scene) -> None:
    scene.gate.first.cancel()
    scene.feed(FIRST, frame(TEXT, b"rm"))
    scene.gate.refuse()
    scene.feed(frame(CLOSE, b"\x03\xe8"))
    assert scene.connection.parsed == encode(CLOSE, b"\x03\xe8", mask=bytes(4))


async def test_a_message_that_began_before_the_refusal_ends_behind_it(scene: Scene) -> None:
    scene.feed(FIRST[:3])
    scene.gate.refuse()
    scene.feed(FIRST[3:], frame(CLOSE, b"\x03\xe8"))
    assert scene.connection.parsed == encode(CLOSE, b"\x03\xe8", mask=bytes(4))


async def test_behind_bytes_that_are_no_frames_nothing_is_looked_at(scene: Scene) -> None:
    scene.feed(FIRST)
    scene.gate.refuse()
    for _ in range(3):
        scene.feed(b"\x81\x02{}")
        scene.feed(frame(CLOSE, b"\x03\xe8"))
    assert scene.connection.parsed == b""


async def test_of_a_refused_caller_fragments_are_not_gathered(scene: Scene) -> None:
    scene.feed(FIRST)
    scene.gate.refuse()
    scene.feed(b"\x01" + frame(TEXT, b"x" * 5000)[1:])
    for _ in range(20):
        scene.feed(b"\x00" + frame(TEXT, b"x" * 5000)[1:])
    assert len(scene.gate._frames._parts) <= 2 * FIRST_BYTES_MAX


async def test_more_than_the_bound_behind_the_first_message_closes_the_connection(scene: Scene) -> None:
    scene.feed(FIRST)
    while not scene.connection.is_ended:
        scene.feed(INPUT)
        assert len(scene.gate._held) <= HELD_BYTES_MAX
    scene.gate.admit()
    scene.gate.refuse()
    scene.feed(INPUT)
    assert scene.connection.parsed == b""


FLOOD_BYTES = 16 * 1024 * 1024
LIMIT_S = 30.0


class Pipeline:
    """A real server with a slow request and a websocket that waits for its caller to be admitted, and its caller."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.is_admitted = asyncio.Event()
        self.socket: asyncio.Future[FirstMessageSocket] = asyncio.get_running_loop().create_future()
        self.received: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow(self, _: web.Request) -> web.Response:
        await self.goes_on.wait()
        return web.Response(text="slow")

    async def echo(self, request: web.Request) -> web.WebSocketResponse:
        peer = FirstMessageSocket(max_msg_size=FLOOD_BYTES)
        await peer.prepare(request)
        await peer.first_message()
        self.socket.set_result(peer)
        await self.is_admitted.wait()
        peer.admit()
        self.received.set_result(sum([len(message.data) async for message in peer]))
        return peer

    async def serve(self, tls: ssl.SSLContext | None) -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/slow", self.slow)
        app.router.add_get("/echo", self.echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return runner, runner.addresses[0][1]


HEAD = (
    b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
    b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n\r\n"
)


async def _send(writer: asyncio.StreamWriter, frames: int) -> None:
    for _ in range(frames):
        writer.write(INPUT)
        await writer.drain()


@pytest.fixture(params=["plain", "tls"])
def contexts(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """The server's TLS context and the caller's; None for plain TCP."""
    if request.param == "plain":
        return None, None
    now = RealEnv().now()
    authority = make_authority(Wish(common_name="authority", days=1), now)
    pair = make_certificate(Wish(common_name="here", days=1, is_server=True), authority, now)
    (tmp_path / "both.pem").write_bytes(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "both.pem")
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
    return server, caller


async def test_an_upgrade_behind_a_slow_request_is_held_within_the_bound_until_it_is_admitted(
    contexts: tuple[ssl.SSLContext | None, ssl.SSLContext | None],
) -> None:
    pipeline = Pipeline()
    runner, port = await pipeline.serve(contexts[0])
    frames = FLOOD_BYTES // len(INPUT)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[1])
    writer.write(HEAD + FIRST)
    sending = asyncio.create_task(_send(writer, frames))  # aiohttp pauses above 64 KiB behind the upgrade
    try:
        await asyncio.sleep(0.2)
        pipeline.goes_on.set()
        peer = await asyncio.wait_for(pipeline.socket, LIMIT_S)
        await asyncio.sleep(0.5)
        assert peer._gate is not None
        assert len(peer._gate._held) <= HELD_BYTES_MAX
        assert not sending.done() and peer._req is not None and peer._req.transport is not None
        assert not peer._req.transport.is_reading()
        pipeline.is_admitted.set()
        await asyncio.wait_for(sending, LIMIT_S)
        writer.write(frame(CLOSE, b"\x03\xe8"))
        assert await asyncio.wait_for(pipeline.received, LIMIT_S) == frames * 100_000
    finally:
        sending.cancel()
        writer.close()
        await runner.cleanup()
