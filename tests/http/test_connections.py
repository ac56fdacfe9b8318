"""Connections to the API: how many of one address, and how long a handshake may take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiRequest
from yurt.http.app import make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, OwnSockets, ServedAddress
from yurt.http.edge.protocol import Pace
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.http.forwarding.forward import OwnApi
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.runtime.env import RealEnv
from yurt.testing.fakes import eventually

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PASSED_ON = 150
"""More than the connections that an HTTP client opens by itself."""
BARRIER = web.AppKey("barrier", asyncio.Barrier)
REQUEST = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY_HEAD = b"PUT /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
FAST = Pace(head_s=0.3, body_grace_s=0.3)


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def wait(request: web.Request) -> web.Response:
    """Answered once everybody has asked."""
    everybody: asyncio.Barrier = request.app[BARRIER]
    await everybody.wait()
    return web.Response()


@asynccontextmanager
async def serving(
    per_address_max: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
    handshake_s: float = 0,
    own: OwnSockets | None = None,
    pace: Pace | None = None,
    parties: int = PASSED_ON,
) -> AsyncIterator[tuple[int, Connections]]:
    app = make_app(None, None, AgentInfo(version="0.1.0", name="test"))
    app[BARRIER] = asyncio.Barrier(parties)
    app.router.add_get("/hello", hello)
    app.router.add_put("/size", size)
    app.router.add_get("/wait", wait)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    connections = Connections(per_address_max, own, pace=pace, strangers=app[STRANGERS], options=HTTP_OPTIONS)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    await ServedAddress(runner, listening, connections, tls=tls, handshake_s=handshake_s).start()
    try:
        yield listening.getsockname()[1], connections
    finally:
        await runner.cleanup()


async def status(streams: Streams) -> int:
    """Ask over an open connection."""
    reader, writer = streams
    writer.write(REQUEST)
    async with asyncio.timeout(60):
        line = await reader.readline()
        await reader.readuntil(b"hello" if b" 200 " in line else b"again\n")
    return int(line.split()[1])


async def close(streams: Streams) -> None:
    streams[1].close()
    await streams[1].wait_closed()


async def test_an_address_has_so_many_connections_at_work_and_others_work_on() -> None:
    async with serving(2, parties=3) as (port, connections):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in kept:
            writer.write(REQUEST.replace(b"/hello", b"/wait"))
        await eventually(lambda: connections.at_work == 2)
        further = await asyncio.open_connection("127.0.0.1", port)
        assert await status(further) == 429
        elsewhere = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        assert await status(elsewhere) == 200
        assert connections.refused == 1
        elsewhere[1].write(REQUEST.replace(b"/hello", b"/wait"))
        for reader, _ in kept:
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        again = await asyncio.open_connection("127.0.0.1", port)
        assert await status(again) == 200
        assert await kept[0][0].read(1) == b""
        for each in (*kept, further, elsewhere, again):
            each[1].transport.abort()
            with contextlib.suppress(ConnectionError):
                await each[1].wait_closed()


async def test_requests_of_other_agents_wait_side_by_side_and_count_to_no_address() -> None:
    own = OwnSockets()
    async with serving(2, own=own) as (port, connections):
        api = OwnApi(f"http://127.0.0.1:{port}", sockets=own)
        try:
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*(passed_on(api) for _ in range(PASSED_ON)))
        finally:
            await api.close()
        assert answers == [[200]] * PASSED_ON
        assert connections.refused == 0


async def passed_on(api: OwnApi) -> list[int]:
    """The statuses among the parts of an answer."""
    parts = [part async for part in api.ask(ApiRequest(method="GET", path="/wait"), no_body())]
    return [part.status for part in parts if isinstance(part, ApiPart) and part.status]


async def no_body() -> AsyncIterator[bytes]:
    for _ in ():
        yield b""


async def test_whoever_begins_no_handshake_is_sent_away(tmp_path: Path) -> None:
    now = RealEnv().now()
    authority = make_authority(Wish(common_name="authority", days=1), now)
    pair = make_certificate(Wish(common_name="here", days=1, is_server=True), authority, now)
    (tmp_path / "both.pem").write_bytes(pair.certificate + pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "both.pem")
    async with serving(tls=tls, handshake_s=0.1) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


# Requests that do not arrive whole.

UNFINISHED = {
    "nothing": b"",
    "half a head": b"GET /hello HTTP/1.1\r\nHost: loc",
    "half a body": BODY_HEAD + b"x",
    "a body that nobody reads": BODY_HEAD.replace(b"/size", b"/v1/nonsense") + b"x",
    "half a request behind a whole one": REQUEST + REQUEST[:20],
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
async def test_unfinished_requests_lock_nobody_out_behind_the_same_address(sent: bytes) -> None:
    loop = asyncio.get_running_loop()
    async with serving(100) as (port, connections), contextlib.AsyncExitStack() as held:
        for _ in range(300):
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            await loop.sock_connect(each, ("127.0.0.1", port))
            await loop.sock_sendall(each, sent)
        for _ in range(5):
            asked = await asyncio.open_connection("127.0.0.1", port)
            assert await status(asked) == 200
            await close(asked)
        assert connections.refused == 0


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
async def test_an_unfinished_request_ends_in_time(sent: bytes) -> None:
    async with serving(pace=FAST) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if sent.startswith(REQUEST):
            assert await status((reader, writer)) == 200
        writer.write(sent.removeprefix(REQUEST))
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert (b" 408 " in answer) == (sent not in (b"", UNFINISHED["a body that nobody reads"]))
        writer.close()


async def test_a_body_that_comes_slowly_but_steadily_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(pace=Pace(head_s=0.3, body_grace_s=0.1, body_bytes_per_s=1000)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BODY_HEAD)
        for _ in range(25):
            writer.write(b"x" * 4000)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            assert b" 200 " in await reader.readline()
        writer.close()
    assert not caplog.records


async def test_an_idle_connection_stays_and_is_asked_again_later() -> None:
    async with serving(pace=FAST) as (port, _):
        kept = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            assert await status(kept) == 200
            await asyncio.sleep(0.5)
        await close(kept)


async def test_a_whole_request_is_answered_though_the_loop_stood_still_over_its_time() -> None:
    """What had come was not read yet when its time was over: it must not be told 408 and then carried out."""
    async with serving(pace=Pace(head_s=0.2, body_grace_s=0.2)) as (port, connections):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            await eventually(lambda: connections._places)
            client.sendall(REQUEST)
            time.sleep(0.5)  # noqa: ASYNC251 - the stall
            client.setblocking(False)
            answer = await asyncio.get_running_loop().sock_recv(client, 4096)
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.count(b"HTTP/1.1") == 1
