"""Followed streams end with their last chunk when the agent stops; other answers break off."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import pytest
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiRequest
from yurt.http.app import make_app
from yurt.http.call import CONTEXT
from yurt.http.edge.followed import EVENTS, FRAMES, PLAIN
from yurt.http.edge.followed import FOLLOWED as FOLLOWED_HEADER
from yurt.structs.rpc import FileInfo, StreamFrame
from yurt.testing.http_api import NODE_ID, Api

LIMIT_S = 0.5
LAST_CHUNK = b"0\r\n\r\n"
LOGS = "/v1/client/fs/logs/{alloc}?task=main&type=stdout&follow=true"
JOB_LOGS = "/v1/yurt/job/web/logs?type=stdout&follow=true"
WATCH = "/v1/yurt/watch?view=%7B%22ID%22:%22a%22,%22Kind%22:%22jobs%22%7D"
FOLLOWED = (
    "/v1/event/stream",
    "/v1/agent/monitor",
    "/v1/agent/monitor?plain=true",
    LOGS,
    f"{LOGS}&plain=true",
    "/v1/client/fs/stream/{alloc}?path=a",
    JOB_LOGS,
    WATCH,
)
PIECE = b"x" * 1_000_000


class GrowingNode:
    """A connected node whose log and files never end."""

    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        return FileInfo(name=path, is_dir=False, size=1, file_mode="-rw-r--r--", mod_time=1, content_type="text/plain")

    async def stream_logs(self, alloc_id: str, task: str, **options: object) -> AsyncIterator[StreamFrame]:
        yield StreamFrame(data=b"hello\n", file="main.stdout.0")
        while task == "endless":
            yield StreamFrame(data=PIECE, file="main.stdout.0")
        await asyncio.Event().wait()

    async def stream_file(self, alloc_id: str, path: str, **options: object) -> AsyncIterator[StreamFrame]:
        yield StreamFrame(data=b"hello\n", file=path)
        await asyncio.Event().wait()

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.Event().wait()


class Stopping(NamedTuple):
    """An agent's HTTP server that can be stopped."""

    runner: web.AppRunner
    alloc_id: str
    writers: list[asyncio.StreamWriter]

    async def open(self, path: str) -> asyncio.StreamReader:
        """Ask for a stream and read its head."""
        host, port = self.runner.addresses[0][:2]
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        self.writers.append(writer)
        writer.write(f"GET {path.replace('{alloc}', self.alloc_id)} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and b"Transfer-Encoding: chunked" in head, head
        return reader

    async def stop(self) -> float:
        """End the streams as an agent does; returns how long that took, seconds."""
        began = asyncio.get_running_loop().time()
        await self.runner.app[CONTEXT].followed.end_all(LIMIT_S)
        return asyncio.get_running_loop().time() - began


@asynccontextmanager
async def _served(app: web.Application, alloc_id: str) -> AsyncIterator[Stopping]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield (stopping := Stopping(runner, alloc_id, []))
    finally:
        await runner.cleanup()
        for writer in stopping.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture
async def stopping(api_with_node: Api) -> AsyncIterator[Stopping]:
    """An agent with an allocation on a node whose files grow."""
    api_with_node.server.clients.node_ports.attach(NODE_ID, GrowingNode())
    await api_with_node.register()
    (stub,) = await api_with_node.wait_until("/v1/job/web/allocations", len)
    app = make_app(api_with_node.server.http, None, AgentInfo())
    async with asyncio.timeout(60), _served(app, str(stub["ID"])) as stopping:
        yield stopping


@pytest.mark.parametrize("path", FOLLOWED)
async def test_a_followed_stream_ends_with_its_last_chunk(stopping: Stopping, path: str) -> None:
    reader = await stopping.open(path)

    lasted = await stopping.stop()

    body = await reader.read(-1)
    assert body.endswith(LAST_CHUNK) and lasted < LIMIT_S


@pytest.mark.parametrize("path", [LOGS, JOB_LOGS, WATCH])
async def test_the_last_line_of_a_stream_says_that_it_may_be_resumed(stopping: Stopping, path: str) -> None:
    reader = await stopping.open(path)

    await stopping.stop()

    *_, last, _ = [line for line in (await reader.read(-1)).splitlines() if line]
    assert json.loads(last) == {"Ended": "the agent is stopping"}


async def test_a_compressed_stream_ends_complete(stopping: Stopping) -> None:
    host, port = stopping.runner.addresses[0][:2]
    url = f"http://{host}:{port}{WATCH}"
    async with aiohttp.ClientSession(auto_decompress=False) as session, session.get(url) as answer:
        await stopping.stop()

        # A gzip stream without its end raises.
        text = gzip.decompress(await answer.read())

    assert answer.headers["Content-Encoding"] == "gzip"
    assert json.loads(text.splitlines()[-1]) == {"Ended": "the agent is stopping"}


async def test_an_answer_with_an_end_of_its_own_breaks_off(stopping: Stopping) -> None:
    reader = await stopping.open("/v1/client/fs/cat/{alloc}?path=a")

    await stopping.stop()
    await stopping.runner.cleanup()

    body = await reader.read(-1)
    assert b"half" in body and not body.endswith(LAST_CHUNK)


async def test_a_reader_that_does_not_read_delays_the_stop_to_its_limit_only(stopping: Stopping) -> None:
    await stopping.open(LOGS.replace("main", "endless"))
    await asyncio.sleep(0.1)  # nothing tells that the buffers of both ends are full

    lasted = await stopping.stop()

    assert lasted < LIMIT_S + 0.4


async def test_a_slow_reader_gets_the_rest_and_the_last_chunk(stopping: Stopping) -> None:
    reader = await stopping.open(LOGS.replace("main", "endless"))
    await asyncio.sleep(0.1)  # nothing tells that the buffers of both ends are full

    async with asyncio.TaskGroup() as group:
        group.create_task(stopping.stop())
        body = await reader.read(-1)

    assert body.endswith(LAST_CHUNK)


async def test_a_stream_that_begins_while_the_agent_stops_ends_at_once(stopping: Stopping) -> None:
    await stopping.stop()

    reader = await stopping.open("/v1/event/stream")

    assert (await reader.read(-1)).endswith(LAST_CHUNK)


class PassedOnPieces:
    """The API of a server that sends pieces of frames, and then nothing more."""

    def __init__(self, *pieces: bytes, form: str, encoding: str = "") -> None:
        self._pieces = pieces
        self._headers = {FOLLOWED_HEADER: form} | ({"Content-Encoding": encoding} if encoding else {})

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        yield ApiPart(status=200, headers=self._headers)
        for piece in self._pieces:
            yield ApiPart(data=piece)
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("form", "pieces", "is_ended"),
    [
        (FRAMES, (b'{"Data":"aGVs', b'bG8="}\n'), True),
        (FRAMES, (b'{"Data":"aGVs',), False),
        (EVENTS, (b'{"Index":1}\n', b'{"Index'), False),
        (PLAIN, (b"hello",), True),
    ],
)
async def test_a_stream_that_is_passed_on_breaks_off_within_a_frame(
    form: str, pieces: tuple[bytes, ...], is_ended: bool
) -> None:
    app = make_app(None, None, AgentInfo(), servers=PassedOnPieces(*pieces, form=form))
    async with asyncio.timeout(60), _served(app, "") as stopping:
        reader = await stopping.open("/v1/event/stream")
        for piece in pieces:
            await reader.readuntil(piece + b"\r\n")

        await stopping.stop()

        body = await reader.read(-1)
    assert (b"Ended" in body, body.endswith(LAST_CHUNK)) == (is_ended and form == FRAMES, is_ended)


async def test_a_compressed_stream_that_is_passed_on_breaks_off() -> None:
    pieces = PassedOnPieces(b"\x1f\x8b\n", form=FRAMES, encoding="gzip")
    async with asyncio.timeout(60), _served(make_app(None, None, AgentInfo(), servers=pieces), "") as stopping:
        reader = await stopping.open("/v1/event/stream")
        await reader.readuntil(b"\x1f\x8b\n\r\n")

        await stopping.stop()

        assert await reader.read(-1) == b""
