"""Bytes that are not HTTP, or not quite: the agent answers or closes, counts, and writes a line a minute."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.runtime.peer_lines import LINE_INTERVAL_S, PEERS_MAX, PeerLines, one_line, peer_of
from yurt.testing.http_api import Api, job_document

ROUNDS = 3_000
BODY = json.dumps({"Job": job_document("x")}).encode()
SEEDS = (
    b"GET /v1/jobs?prefix=a&filter=ID%20%3D%3D%20%22a%22 HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
    b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
    b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"10\r\n{\"Prefix\": \"abc\"\r\n1\r\n}\r\n0\r\n\r\n",
    b"PUT /v1/var/a/b?cas=0 HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
    b"Content-Length: 12\r\n\r\n\x1f\x8b\x08 not gzip",
    b"GET /v1/client/allocation/11111111-2222-4333-8444-555555555555/exec?task=t&command=%5B%22a%22%5D HTTP/1.1\r\n"
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ui/ HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n",
    b"PUT /v1/jobs?region=mars HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"DELETE /v1/job/a%2Fb%00?purge=true HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"CONNECT a:99999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nHost: [::1\r\n\r\n", b"GET /%zz\xff HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff" * 200,
)  # fmt: skip
PIECES = (
    b"\r\n", b"\r\n\r\n", b"\n", b"\0", b"\xff\xfe", b": ", b" ", b"%", b"%00", b"HTTP/1.1", b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: br\r\n",
    b"Content-Encoding: zstd\r\n", b"Host: \xc3\x28\r\n", b"Origin: \xff\r\n", b"Referer: http://[\r\n", b"A" * 9_000,
    b"Connection: Upgrade, close\r\n", b"Upgrade: h2c\r\n", b"Cookie: \x01=\xff\r\n", b"FFFFFFFFFFFFFFFF\r\n",
    b"zz\r\n",
)  # fmt: skip


def mutated(dice: random.Random) -> bytes:
    """A request, cut, flipped, doubled or with a piece in it; now and then nothing but noise."""
    if dice.random() < 0.05:
        return dice.randbytes(dice.randrange(1, 400))
    data = bytearray(dice.choice(SEEDS))
    for _ in range(dice.randrange(0, 4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data[at:at] = dice.choice(PIECES)
            case 1 if data:
                data[at % len(data)] = dice.randrange(256)
            case 2:
                del data[at : at + dice.randrange(1, 20)]
            case _:
                data[at:at] = data[max(0, at - 30) : at]
    return bytes(data)


@contextlib.asynccontextmanager
async def live(api: Api) -> AsyncIterator[int]:
    """The application as an agent serves it, on a port."""
    assert api.client.app is not None
    runner = web.AppRunner(api.client.app, shutdown_timeout=0.1)
    await runner.setup()
    connections = Connections(0, strangers=api.client.app[STRANGERS], options=HTTP_OPTIONS)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    await ServedAddress(runner, listening, connections, tls=None, handshake_s=0).start()
    try:
        yield listening.getsockname()[1]
    finally:
        await runner.cleanup()


async def throw(port: int, *thrown: bytes) -> None:
    """Send bytes on a connection each, side by side."""
    async with asyncio.TaskGroup() as group:
        for data in thrown:
            group.create_task(throw_one(port, data))


async def throw_one(port: int, data: bytes) -> None:
    """Send bytes, say that there are no more, and hear what comes back."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sent, contextlib.suppress(ConnectionError):
        sent.setblocking(False)
        await loop.sock_connect(sent, ("127.0.0.1", port))
        await loop.sock_sendall(sent, data)
        sent.shutdown(socket.SHUT_WR)
        while await asyncio.wait_for(loop.sock_recv(sent, 65_536), 20):
            pass


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_comes_there_is_a_line_a_minute_and_no_traceback(
    api: Api, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    caplog.set_level(logging.INFO)
    dice = random.Random(seed)
    async with live(api) as port:
        await throw(port, *SEEDS, b"")
        for _ in range(ROUNDS // 20):
            await throw(port, *(mutated(dice) for _ in range(20)))
        assert (await api.get("/v1/jobs")).status == 200
    assert api.server.metrics.counters["http.bad_request"] > ROUNDS // 20
    assert [line.getMessage() for line in caplog.records if line.exc_info or "Traceback" in line.getMessage()] == []
    assert len([line for line in caplog.records if line.levelno >= logging.WARNING]) <= 3


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"zstd", b"nonsense", b"gzip, identity", b"\xff"])
async def test_a_wrong_content_encoding_is_400(api: Api, caplog: pytest.LogCaptureFixture, coding: bytes) -> None:
    head = b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nContent-Encoding: %b\r\n\r\n"
    async with live(api) as port:
        for name, status in ((coding, b" 400 "), (b"Identity", b" 200 ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head % (len(BODY), name) + BODY)
            async with asyncio.timeout(20):
                assert status in await reader.readline()
            writer.close()
    assert not any(line.exc_info for line in caplog.records)


async def test_a_body_with_broken_chunks_is_400(api: Api) -> None:
    async with live(api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"zz\r\n")
        async with asyncio.timeout(5):
            assert b" 400 " in await reader.readline()
        writer.close()


# Lines.


def test_a_peer_has_one_line_a_minute_and_all_peers_a_hundred(caplog: pytest.LogCaptureFixture) -> None:
    lines = PeerLines(logging.getLogger("test"))
    for number in range(50):
        lines.report("10.0.0.1:999", f"line {number}", now_s=number)
    assert len(caplog.records) == 1
    lines.report("10.0.0.1", "again", now_s=LINE_INTERVAL_S)
    assert caplog.records[-1].getMessage() == "connection problem: peer=10.0.0.1 suppressed=49 problem=again"
    for number in range(1_000):
        lines.report(f"10.1.{number // 250}.{number % 250}", "x", now_s=LINE_INTERVAL_S)
    assert len(caplog.records) == 1 + PEERS_MAX
    lines.report("10.9.9.9", "later", now_s=3 * LINE_INTERVAL_S)
    assert len(caplog.records) == 2 + PEERS_MAX


def test_a_peer_is_an_address_or_a_subnet_and_a_line_is_one_line() -> None:
    assert [peer_of(text) for text in ("1.2.3.4:5", "1.2.3.4", "2001:db8::1", "[2001:db8::2]:99", "x\ny", "")] == [
        "1.2.3.4", "1.2.3.4", "2001:db8::/64", "2001:db8::/64", "x\\ny", "",
    ]  # fmt: skip
    assert one_line("a\n\udc80\x1b[1m") == "a\\n\\udc80\\x1b[1m"
    assert len(one_line("a" * 10_000)) == 303
