"""Requests that an agent without a server passes on: what its reader sees, also when the answer breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yurt.access.calls import CallerKind, ProvenCaller
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.http.app import make_app
from yurt.http.forwarding.forward import OwnApi
from yurt.rpc.contract import contract_of
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import far_port
from yurt.sdk.errors import Unavailable
from yurt.testing.cluster_models.wires import joined_peers
from yurt.testing.fakes import eventually


class Ends:
    """The API of a server that goes away after so many parts."""

    def __init__(self, *parts: ApiPart) -> None:
        self.parts = parts

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        for part in self.parts:
            yield part
        raise Unavailable("the connection to the other agent has ended")


class AgentServer(TestServer):
    """Requests go on when their reader has left, as an agent has it; otherwise tests would end them."""

    async def _make_runner(self, **settings: Any) -> web.AppRunner:
        return web.AppRunner(self.app, **(settings | {"handler_cancellation": False}))


@asynccontextmanager
async def client_agent(api: ApiPort) -> AsyncIterator[TestClient[Any, Any]]:
    agent = AgentInfo(version="0.1.0", name="test", dev=False, plugins=())
    async with TestClient(AgentServer(make_app(None, None, agent, servers=api))) as client:
        yield client


async def test_an_answer_that_never_began_says_why() -> None:
    async with client_agent(Ends()) as client, client.get("/v1/jobs") as answer:
        assert answer.status >= 500
        assert "has ended" in await answer.text()


@pytest.mark.parametrize("head", [b"X-Nomad-Token: \xff\xfe", b"X-Other: \xc3\x28"])
async def test_bytes_that_no_frame_between_agents_holds_are_refused(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_agent(Ends(ApiPart(status=200))) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: %b\r\n%b\r\n\r\n" % (client.host.encode(), head))
        assert b" 400 " in await reader.readline()
        writer.close()
    assert not caplog.records


async def test_a_stream_that_breaks_off_is_not_taken_for_whole_and_holds_nothing_else() -> None:
    api = Ends(ApiPart(status=200, headers={"Content-Type": "application/json"}), ApiPart(data=b'{"Index": 1}\n'))
    got = b""
    async with client_agent(api) as client, client.get("/v1/event/stream") as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            async for piece in answer.content.iter_any():
                got += piece
    assert got == b'{"Index": 1}\n'


async def nothing() -> AsyncGenerator[bytes]:
    """No body."""
    for piece in ():
        yield piece


async def test_the_path_reaches_the_server_as_it_was_asked_and_redirects_reach_the_reader() -> None:
    seen: list[str] = []

    async def any_path(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(status=307, headers={"Location": "/ui/"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", any_path)
    path = "/v1/job/a%2Fb%20c%3Fd/../x?filter=Name+%3D%3D+%22a%26b%22&prefix=%2B"
    async with TestServer(app) as server:
        own = OwnApi(str(server.make_url("")).rstrip("/"))
        try:
            parts = [part async for part in own.ask(ApiRequest(method="GET", path=path), nothing())]
        finally:
            await own.close()
    assert seen == [path]
    assert (parts[0].status, parts[0].headers["Location"]) == (307, "/ui/")


class Reads:
    """The API of a server that reads a body to its end before it answers."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        self.begun.set()
        try:
            size = sum([len(piece) async for piece in body])
            yield ApiPart(status=200)
            yield ApiPart(data=str(size).encode())
        finally:
            self.ended.set()


async def test_a_body_that_breaks_off_leaves_nothing_behind_at_either_end() -> None:
    reads, contract = Reads(), contract_of(ApiPort)
    async with joined_peers({}, {"api": Served(contract, reads, ProvenCaller(kind=CallerKind.SERVER))}) as (near, far):

        async def get() -> Peer:
            return near

        async with client_agent(far_port(contract, "api", get)) as client:
            async with client.put("/v1/operator/snapshot", data=b"x" * 100_000) as answer:
                assert (answer.status, await answer.text()) == (200, "100000")
            reads.begun.clear()
            reads.ended.clear()
            _, writer = await asyncio.open_connection(client.host, client.port)
            writer.write(
                b"PUT /v1/operator/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nonly this"
            )
            async with asyncio.timeout(60):
                await reads.begun.wait()
                writer.close()
                await reads.ended.wait()
            await eventually(lambda: far.is_idle)


async def test_whose_page_a_browser_shows_is_judged_where_it_asks_and_not_told_to_others() -> None:
    seen: list[dict[str, str]] = []

    class Sees(Ends):
        async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
            seen.append({name.lower(): value for name, value in request.headers.items()})
            yield ApiPart(status=200)

    async with client_agent(Sees()) as client:
        own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin", "Cookie": "a=b"}
        for headers in (own, own | {"Origin": "https://evil.example", "X-Yurt-Forwarded": "server"}):
            async with client.put("/v1/system/gc", headers=headers) as answer:
                assert answer.status == (200 if headers is own else 403)
    assert len(seen) == 1
    assert seen[0]["x-yurt-forwarded"] == "client"
    assert not seen[0].keys() & {"origin", "sec-fetch-site", "cookie", "referer"}
