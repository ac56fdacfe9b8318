"""Websockets through an agent without a server: the caller speaks with the server's API as if it had asked there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiRequest
from yurt.http.app import make_app
from yurt.http.forwarding.forward import OwnApi
from yurt.http.forwarding.forwarded_sockets import ask_socket, handshake
from yurt.sdk.errors import ERROR_HEADER, Invalid, Unavailable

PATH = "/v1/client/allocation/00000000-0000-0000-0000-000000000000/exec?task=main"
LIMIT_S = 60.0


class Far:
    """A server's API with a websocket that answers each message, and remembers how it was asked."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.closed_with = 0
        self.is_over = asyncio.Event()

    async def exec(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        if request.query.get("task") == "other":
            return web.Response(status=404, text="unknown task name", headers={ERROR_HEADER: "unknown-allocation"})
        peer = web.WebSocketResponse(timeout=10 * LIMIT_S)  # so long it waits for the answer to its close
        await peer.prepare(request)
        async for message in peer:
            if message.data == "bye":
                await peer.close(code=4409, message=b"it has ended")
            elif message.type == WSMsgType.BINARY:
                await peer.send_bytes(message.data[::-1])
            else:
                await peer.send_str(f"heard {message.data}")
        self.closed_with = peer.close_code or 0
        self.is_over.set()
        return peer


@asynccontextmanager
async def through(far: Far) -> AsyncIterator[TestClient[Any, Any]]:
    """An agent that passes on to that API."""
    app = web.Application()
    app.router.add_get("/v1/client/allocation/{id}/exec", far.exec)
    agent = AgentInfo(version="0.1.0", name="test", dev=False, plugins=())
    async with TestServer(app) as server:
        own = OwnApi(str(server.make_url("")).rstrip("/"))
        async with TestClient(TestServer(make_app(None, None, agent, servers=own))) as client:
            yield client
        await own.close()


async def test_messages_of_any_size_go_both_ways_and_the_close_is_the_servers() -> None:
    far, large = Far(), bytes(range(256)) * 8192
    async with through(far) as client, client.ws_connect(PATH, headers={"X-Nomad-Token": "t"}) as socket:
        await socket.send_str("hello")
        assert await socket.receive_str(timeout=LIMIT_S) == "heard hello"
        await socket.send_bytes(large)
        assert await socket.receive_bytes(timeout=LIMIT_S) == large[::-1]
        await socket.send_str("bye")
        last = await socket.receive(timeout=LIMIT_S)
        assert (last.type, last.data, last.extra) == (WSMsgType.CLOSE, 4409, "it has ended")
    assert far.headers["X-Nomad-Token"] == "t"


async def test_a_caller_that_closes_or_goes_without_a_word_ends_the_far_side() -> None:
    for is_polite in (True, False):
        far = Far()
        async with through(far) as client:
            socket = await client.ws_connect(PATH)
            await socket.send_str("hello")
            await socket.receive_str(timeout=LIMIT_S)
            if is_polite:
                await socket.close()
            else:
                assert socket._response.connection is not None
                socket._response.connection.transport.abort()  # type: ignore[union-attr]
            await asyncio.wait_for(far.is_over.wait(), LIMIT_S)


async def test_a_refusal_is_the_servers_own() -> None:
    async with through(Far()) as client:
        async with client.ws_connect(PATH.replace("main", "other")) as socket:
            last = await socket.receive(timeout=LIMIT_S)
            assert (last.type, last.data, last.extra) == (WSMsgType.CLOSE, 1008, "unknown task name")
            assert socket._response.headers[ERROR_HEADER] == "unknown-allocation"
        async with client.get(PATH.replace("main", "other")) as answer:
            assert answer.status == 404


async def test_a_page_of_another_host_is_refused_here_and_one_of_this_host_passes() -> None:
    far = Far()
    async with through(far) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(PATH, origin="http://evil.test")
        assert (caught.value.status, far.headers) == (403, {})
        async with client.ws_connect(PATH, origin=str(client.make_url("")).rstrip("/")) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str(timeout=LIMIT_S) == "heard hello"
        assert "Origin" not in far.headers


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/x y", {}), ("/v1/x\r\nEvil: 1", {}), ("/v1/x", {"A": "b\r\nEvil: 1"}), ("/v1/x", {"A\nEvil": "1"})],
)
def test_a_forwarded_request_stays_one_request(path: str, headers: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="line break"):
        handshake(URL("http://127.0.0.1:1"), path, headers, key="k")


async def nothing() -> AsyncGenerator[bytes]:
    for piece in ():
        yield piece


async def test_an_api_that_does_not_answer_is_told() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await anext(ask_socket("http://127.0.0.1:9", None, ApiRequest(method="GET", path=PATH), nothing()))


async def test_a_server_that_is_lost_meanwhile_closes_with_the_reason() -> None:
    class Lost:
        async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
            yield ApiPart(status=101)
            raise Unavailable("the connection to the other agent has ended")

    agent = AgentInfo(version="0.1.0", name="test", dev=False, plugins=())
    async with (
        TestClient(TestServer(make_app(None, None, agent, servers=Lost()))) as client,
        client.ws_connect(PATH) as socket,
    ):
        last = await socket.receive(timeout=LIMIT_S)
        assert (last.type, last.extra) == (WSMsgType.CLOSE, "the connection to the other agent has ended")
