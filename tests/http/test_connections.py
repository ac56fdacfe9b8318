"""Connections to the API: how many of one address, and how long a handshake may take."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from yurt.http.connections import Connections, OwnSockets, Site
from yurt.http.forwarding import ApiPart, ApiRequest, OwnApi
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.runtime.env import RealEnv

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PASSED_ON = 150
"""More than the connections that an HTTP client opens by itself."""
BARRIER = web.AppKey("barrier", asyncio.Barrier)
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


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
) -> AsyncIterator[tuple[int, Connections]]:
    app = web.Application()
    app[BARRIER] = asyncio.Barrier(PASSED_ON)
    app.router.add_get("/", hello)
    app.router.add_get("/wait", wait)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    connections = Connections(per_address_max, own)
    assert runner.server is not None
    connections.watch(runner.server)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    await Site(runner, listening, tls=tls, handshake_s=handshake_s).start()
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


async def test_an_address_has_so_many_connections_and_others_work_on() -> None:
    async with serving(2) as (port, connections):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert [await status(each) for each in kept] == [200, 200]
        further = await asyncio.open_connection("127.0.0.1", port)
        assert await status(further) == 429
        elsewhere = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        assert await status(elsewhere) == 200
        assert connections.refused == 1
        for each in (kept[0], further):
            await close(each)
        again = await asyncio.open_connection("127.0.0.1", port)
        assert await status(again) == 200
        for each in (kept[1], elsewhere, again):
            await close(each)


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
