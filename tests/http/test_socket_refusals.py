"""Websockets are refused as by Nomad: they open and close with the reason; a browser names its token in a message."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import WSMsgType
from aiohttp.test_utils import TestClient, TestServer
from yurt.cli.api.websocket import switch
from yurt.client.client import Client
from yurt.http import websockets
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.edge.first_message import FIRST_BYTES_MAX
from yurt.http.forwarding.forward import NodeApi, OwnApi
from yurt.sdk.errors import ERROR_HEADER, DriverError, Invalid, NotFound, PermissionDenied
from yurt.server.config import AclConfig
from yurt.structs.acl import ACLPolicy, ACLToken, hash_of_secret
from yurt.structs.commands.acl import CreateACLToken, UpsertACLPolicies
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.testing.http_api import UNKNOWN_ID, Api, serving

ALLOC = "aaaaaaaa-2222-4333-8444-555555555555"
EXEC = f"/v1/client/allocation/{ALLOC}/exec"
COMMAND = "&command=%5B%22sh%22%5D"
MAY, MAY_NOT = str(uuid.UUID(int=2)), str(uuid.UUID(int=4))
LIMIT_S = 30.0
LONG = 'Task "main" was not found: ' + "ü" * 40 + " is the reason, and this is how to correct it: " + "x" * 40
REFUSED_BY_NODE = {
    "missing": NotFound('Unknown task "missing"; the allocation has main'),
    "no-exec": DriverError('driver "mock" does not run commands in tasks'),
    "disabled": PermissionDenied("Permission denied: remote exec is disabled"),
    "dead": Invalid('Task "dead" is not running: it is dead'),
    "long": Invalid(LONG),
}
"""By task, what the node says of a command in it."""


class Node:
    """A node with one allocation, whose commands repeat the first message of their caller."""

    calls = cast(Any, property(lambda self: self))
    node_id = "n"
    is_ready = True

    def __init__(self) -> None:
        self.commands = 0

    def facts(self) -> dict[str, str]:
        return {"node_id": self.node_id}

    def alloc_namespace(self, alloc_id: str) -> str | None:
        return "default" if alloc_id == ALLOC else None

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        if request.task in REFUSED_BY_NODE:
            raise REFUSED_BY_NODE[request.task]
        self.commands += 1
        yield ExecFrame()
        async for each in inputs:
            yield ExecFrame(stream="stdout", data=each.data)
            break
        yield ExecFrame(exit_code=0)


class Scene:
    """Two agents: the server with the node, and one that passes requests on to it."""

    def __init__(self, api: Api, node: Node, passing: TestClient[Any, Any]) -> None:
        self.api = api
        self.node = node
        self._clients: dict[str, TestClient[Any, Any]] = {"server": api.client, "passed on": passing}

    def socket(self, way: str, path: str, token: str = "", **options: Any) -> Any:
        headers = {"X-Nomad-Token": token} if token else {}
        return self._clients[way].ws_connect(path, headers=headers, **options)

    async def refusal(self, way: str, path: str, token: str = "") -> tuple[int, str, str]:
        """Close code, reason and the reason's code of a websocket that closes at once."""
        async with self.socket(way, path, token) as socket:
            last = await socket.receive()
            assert last.type is WSMsgType.CLOSE, last
            return last.data, last.extra, socket._response.headers[ERROR_HEADER]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    node = Node()
    async with asyncio.timeout(LIMIT_S), serving(acl=AclConfig(enabled=True), client=cast(Client, node)) as api:
        rules = 'namespace "default" { capabilities = ["alloc-exec", "read-job"] }'
        other = 'namespace "default" { capabilities = ["read-job"] }'
        policies = (ACLPolicy(name="may", rules=rules), ACLPolicy(name="may-not", rules=other))
        await api.server.replica.propose(UpsertACLPolicies(policies=policies))
        for number, (secret, policy) in enumerate([(MAY, "may"), (MAY_NOT, "may-not")]):
            token = ACLToken(
                accessor_id=str(uuid.UUID(int=10 + number)), secret_hash=hash_of_secret(secret), type="client",
                policies=(policy,),
            )  # fmt: skip
            await api.server.replica.propose(CreateACLToken(token=token))
        async with passing_agent(api) as client:
            yield Scene(api, node, client)


@asynccontextmanager
async def passing_agent(api: Api) -> AsyncIterator[TestClient[Any, Any]]:
    """An agent without a server or a client of its own."""
    own = OwnApi(str(api.client.make_url("/")).rstrip("/"))
    app = make_app(None, None, AgentInfo(name="c", acl_enabled=True), servers=NodeApi(own, "n"))
    async with TestClient(TestServer(app)) as client:
        yield client
    await own.close()


UNKNOWN, SHORT = (f"/v1/client/allocation/{alloc}/exec?task=t" for alloc in (UNKNOWN_ID, "short"))
WAYS = pytest.mark.parametrize("way", ["server", "passed on"])
REFUSALS: list[tuple[str, str, int, str, str]] = [
    (UNKNOWN, MAY, 1008, f'Unknown allocation "{UNKNOWN_ID}"', "unknown-allocation"),
    (SHORT, MAY, 1011, "alloc lookup failed: index error: UUID must be 36 characters", "failed"),
    (EXEC + "?task=t", MAY_NOT, 1008, "Permission denied", "permission-denied"),
    (EXEC + "?task=t", "", 1008, "Permission denied", "permission-denied"),
    (EXEC + "?task=t", "no-token", 1008, "Permission denied", "permission-denied"),
    (EXEC + "?x=y", MAY, 1008, "missing parameter: task", "invalid"),
    (EXEC + "?task=missing", MAY, 1008, 'Unknown task "missing"; the allocation has main', "not-found"),
    (EXEC + "?task=no-exec", MAY, 1011, 'driver "mock" does not run commands in tasks', "driver-failed"),
    (EXEC + "?task=disabled", MAY, 1008, "Permission denied: remote exec is disabled", "permission-denied"),
    (EXEC + "?task=dead", MAY, 1008, 'Task "dead" is not running: it is dead', "invalid"),
    ("/v1/job/web/action?action=a", MAY, 1008, "job not found", "not-found"),
    ("/v1/job/web/action?task=a", MAY, 1008, "missing parameter: action", "invalid"),
    ("/v1/job/web/action?action=a", MAY_NOT, 1008, "Permission denied", "permission-denied"),
]  # fmt: skip
"""Path, token, close code, reason, and the reason's code."""


@WAYS
@pytest.mark.parametrize(("path", "token", "code", "reason", "name"), REFUSALS)
async def test_a_refusal_closes_the_socket_with_the_reason(
    scene: Scene, way: str, path: str, token: str, code: int, reason: str, name: str
) -> None:
    found = await scene.refusal(way, path + COMMAND, token)
    assert (found[0], found[1].partition(" (")[0]) == (code, reason)
    assert found[2] == name
    assert scene.node.commands == 0


@WAYS
async def test_without_an_upgrade_the_refusal_is_the_answer(scene: Scene, way: str) -> None:
    async with scene._clients[way].get(EXEC + "?task=t" + COMMAND, headers={"X-Nomad-Token": MAY_NOT}) as answer:
        assert (answer.status, await answer.text()) == (403, "Permission denied")
        assert answer.headers[ERROR_HEADER] == "permission-denied"


async def test_an_upgrade_of_another_route_is_none(scene: Scene) -> None:
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }  # fmt: skip
    for path in ("/v1/jobs", "/v1/nonsense", "/v1/job/web"):
        assert (await scene.api.get(path, headers=upgrade)).status in (403, 404)
    assert (await scene.api.call("PUT", "/v1/job/web/action", {}, headers=upgrade)).status == 405


# The token in the first message.

HANDSHAKE = EXEC + "?task=t&ws_handshake=true" + COMMAND


@WAYS
async def test_a_text_too_long_for_a_close_frame_comes_before_it_as_a_whole(scene: Scene, way: str) -> None:
    async with scene.socket(way, EXEC + "?task=long" + COMMAND, MAY) as socket:
        frame, last = await socket.receive_json(), await socket.receive()
        assert base64.b64decode(frame["stderr"]["data"]).decode() == LONG + "\n"
        assert (last.type, last.data) == (WSMsgType.CLOSE, 1008)
        assert last.extra == LONG.partition(" reason")[0] + "..."


async def test_the_command_line_shows_a_long_refusal_as_a_whole(scene: Scene) -> None:
    url = scene.api.client.make_url("/")

    def ask() -> tuple[int, str, bytes, str]:
        with socket.create_connection((url.host, url.port), LIMIT_S) as sock:
            return switch(sock, EXEC + "?task=long" + COMMAND, "localhost", {"X-Nomad-Token": MAY})

    assert await asyncio.to_thread(ask) == (400, LONG, b"", "invalid")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 123, "x" * 123),
        ("x" * 124, "x" * 120 + "..."),
        ("é" * 100, "é" * 60 + "..."),
        ("one, " * 30, "one, " * 23 + "one..."),
        ("\ud800" * 130, "?" * 120 + "..."),
    ],
)
def test_a_reason_is_cut_between_words_where_it_has_any(text: str, shown: str) -> None:
    found = websockets.shortened(text)
    assert found.decode() == shown
    assert len(found) <= 123


def first(token: str) -> dict[str, Any]:
    return {"version": 1, "auth_token": token}


@WAYS
async def test_the_token_of_the_first_message_decides(scene: Scene, way: str) -> None:
    async with scene.socket(way, HANDSHAKE) as socket:
        await asyncio.sleep(0)
        assert scene.node.commands == 0
        await socket.send_json(first(MAY))
        await socket.send_json({"stdin": {"data": "aGVsbG8="}})
        frames = [json.loads(message.data) async for message in socket]
        assert frames == [{"stdout": {"data": "aGVsbG8="}}, {"exited": True, "result": {"exit_code": 0}}]
        assert socket.close_code == 1000
    assert scene.node.commands == 1


@WAYS
@pytest.mark.parametrize("token", [MAY_NOT, "", "no-token", "ab\r\nX-Evil: 1"])
async def test_the_wrong_token_in_the_first_message_is_refused(scene: Scene, way: str, token: str) -> None:
    async with scene.socket(way, HANDSHAKE) as socket:
        await socket.send_json(first(token))
        last = await socket.receive()
        assert (last.type, last.data) == (WSMsgType.CLOSE, 1008)
        assert last.extra.startswith("Permission denied") or "line break" in last.extra
    assert scene.node.commands == 0


@WAYS
async def test_a_token_in_a_header_counts_and_the_first_message_is_no_input(scene: Scene, way: str) -> None:
    async with scene.socket(way, HANDSHAKE, MAY) as socket:
        await socket.send_json(first(MAY_NOT))
        await socket.send_json({"stdin": {"data": "aGVsbG8="}})
        assert await socket.receive_json() == {"stdout": {"data": "aGVsbG8="}}
    assert await refused_with_first(scene, way, first(MAY)) == (1008, "Permission denied")


async def refused_with_first(scene: Scene, way: str, message: dict[str, Any]) -> tuple[Any, Any]:
    """How a caller whose header names the wrong token is refused, whatever its first message says."""
    async with scene.socket(way, HANDSHAKE, MAY_NOT) as socket:
        await socket.send_json(message)
        last = await socket.receive()
        return last.data, last.extra


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{", "no handshake: "),
        ('{"version": 1, "auth_token": 5}', "no handshake: "),
        ('{"auth_token": "x"}', "handshake of version 0: it is 1"),
        ('{"version": 2}', "handshake of version 2: it is 1"),
    ],
)
async def test_another_first_message_is_refused(scene: Scene, message: str, reason: str) -> None:
    async with scene.socket("server", HANDSHAKE) as socket:
        await socket.send_str(message)
        last = await socket.receive()
        assert (last.data, last.extra.startswith(reason)) == (1008, True), last
    assert scene.node.commands == 0


async def test_a_first_message_that_does_not_come_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websockets, "HANDSHAKE_LIMIT_S", 0.05)
    async with scene.socket("server", HANDSHAKE) as socket:
        last = await socket.receive()
        assert (last.data, last.extra) == (1008, "no handshake came within 0 s")
    assert scene.node.commands == 0


async def test_pings_do_not_prolong_the_wait(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "HANDSHAKE_LIMIT_S", 0.3)
    began = asyncio.get_running_loop().time()
    async with scene.socket("server", HANDSHAKE, autoping=False) as socket:
        waiting = asyncio.ensure_future(socket.receive())
        while not waiting.done():
            with contextlib.suppress(ConnectionError):
                await socket.ping()
            await asyncio.sleep(0.02)
        assert (await waiting).extra == "no handshake came within 0 s"
    assert asyncio.get_running_loop().time() - began < LIMIT_S / 3


@WAYS
async def test_a_first_message_that_is_too_long_is_refused_before_it_has_come(scene: Scene, way: str) -> None:
    async with scene.socket(way, HANDSHAKE) as socket:
        await socket.send_json(first("x" * FIRST_BYTES_MAX))
        last = await socket.receive()
        assert (last.data, last.extra) == (1008, "no handshake: a message has more than 8192 bytes")
    assert scene.node.commands == 0


@WAYS
async def test_what_comes_right_behind_the_first_message_is_kept(scene: Scene, way: str) -> None:
    large = base64.b64encode(bytes(1_000_000)).decode()
    async with scene.socket(way, HANDSHAKE) as socket:
        sending = [socket.send_json(each) for each in (first(MAY), {"stdin": {"data": large}})]
        _, frame = await asyncio.gather(asyncio.wait_for(_all(sending), LIMIT_S), socket.receive_json())
        assert frame == {"stdout": {"data": large}}


async def _all(calls: list[Any]) -> None:
    for call in calls:
        await call


async def test_a_foreign_page_gets_no_socket(scene: Scene) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await scene.socket("server", HANDSHAKE, origin="http://evil.test")
    assert refused.value.status == 403
