"""The API at the socket of a task: every request shows a token before anything else is looked at."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiRequest
from yurt.http.app import make_app
from yurt.http.edge.client_errors import ClientErrorReporter
from yurt.http.edge.task_sockets import TaskSockets
from yurt.http.task_api import WHO_AM_I
from yurt.sdk.errors import Unavailable
from yurt.testing.http_api import Api

from tests.http.test_identity_callers import SECRET, Cluster, cluster

__all__ = ["cluster"]


class TaskSocket:
    """Requests over a socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        given = headers | ({"Authorization": f"Bearer {token}"} if token else {})
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._path)) as session,
            session.get(f"http://task{path}", headers=given) as answer,
        ):
            return answer.status, await answer.text()


async def opened(runner: aiohttp.web.BaseRunner, folder: Path) -> tuple[TaskSockets, TaskSocket]:
    path = str(folder / "a.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.setblocking(False)
    listening.bind(path)
    sockets = TaskSockets()
    assert isinstance(runner, aiohttp.web.AppRunner)
    sockets.begin(runner, 0, ClientErrorReporter(), {})
    await sockets.serve(listening)
    return sockets, TaskSocket(path)


@pytest.fixture
async def task(cluster: Cluster, tmp_path: Path) -> AsyncIterator[TaskSocket]:
    runner = cluster.api.client.server.runner
    assert runner is not None
    sockets, found = await opened(runner, tmp_path)
    yield found
    sockets.close()


async def test_a_request_without_a_token_is_unauthorized_whatever_it_asks(task: TaskSocket, cluster: Cluster) -> None:
    await cluster.policy("anonymous", 'namespace "default" { policy = "write" }')
    for path in ("/v1/status/leader", "/v1/jobs", "/ui/", "/nothing", "/.well-known/jwks.json"):
        assert await task.get(path) == (401, "Unauthorized"), path


async def test_a_token_that_does_not_count_is_forbidden(task: TaskSocket, cluster: Cluster) -> None:
    token = await cluster.token()
    for wrong in (str(uuid.uuid4()), "text", token[:-4], await cluster.api.server.clients.introductions.make()):
        assert await task.get("/v1/status/leader", wrong) == (403, "Forbidden")
    await cluster.end()
    assert await task.get("/v1/status/leader", token) == (403, "Forbidden")


async def test_nodes_are_forbidden(task: TaskSocket, cluster: Cluster) -> None:
    assert await task.get("/v1/nodes", SECRET) == (403, "Forbidden")
    assert await task.get("/v1/nodes", await cluster.node_token()) == (403, "Forbidden")


async def test_a_malformed_query_is_a_bad_request(task: TaskSocket) -> None:
    assert await task.get("/v1/jobs?index=x") == (400, "Bad Request")


async def test_identities_and_tokens_have_their_own_rights(task: TaskSocket, cluster: Cluster) -> None:
    await cluster.variable("nomad/jobs/web")
    await cluster.variable("nomad/jobs/other")
    token = await cluster.token()
    assert (await task.get("/v1/var/nomad/jobs/web", token))[0] == 200
    assert await task.get("/v1/var/nomad/jobs/other", token) == (403, "Permission denied")
    assert (await task.get("/v1/var/nomad/jobs/other", cluster.root))[0] == 200


async def test_any_host_name_will_do(task: TaskSocket, cluster: Cluster) -> None:
    assert (await task.get("/v1/status/leader", cluster.root, Host="anything.example"))[0] == 200


async def test_without_access_control_any_token_will_do(api: Api, tmp_path: Path) -> None:
    runner = api.client.server.runner
    assert runner is not None
    sockets, task = await opened(runner, tmp_path)
    assert await task.get("/v1/jobs") == (401, "Unauthorized")
    assert (await task.get("/v1/jobs", "text"))[0] == 200
    sockets.close()


class FarServer:
    """A server that answers who the caller is."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[ApiRequest] = []

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        self.asked.append(request)
        if not self.status:
            raise Unavailable("no server")
        yield ApiPart(status=self.status if request.path == WHO_AM_I else 200)
        yield ApiPart(data=b"[]")


@pytest.mark.parametrize(
    ("told", "answer"), [(200, 200), (400, 200), (403, 403), (500, 500), (0, 500)]
)  # fmt: skip
async def test_an_agent_without_a_server_asks_one(told: int, answer: int, tmp_path: Path) -> None:
    far = FarServer(told)
    info = AgentInfo(version="0.1.0", name="test")
    runner = aiohttp.web.AppRunner(make_app(None, None, info, servers=far))
    await runner.setup()
    sockets, task = await opened(runner, tmp_path)
    status, text = await task.get("/v1/jobs", "shown")
    assert status == answer
    assert far.asked[0].headers == {"X-Nomad-Token": "shown"}
    assert len(far.asked) == (2 if answer == 200 else 1)
    assert text == {200: "[]", 403: "Forbidden", 500: "Server error authenticating request\n"}[answer]
    sockets.close()
    await runner.cleanup()


async def test_an_agent_without_a_server_asks_none_about_bytes_that_are_no_token(tmp_path: Path) -> None:
    far = FarServer(200)
    runner = aiohttp.web.AppRunner(make_app(None, None, AgentInfo(version="0.1.0", name="test"), servers=far))
    await runner.setup()
    sockets, task = await opened(runner, tmp_path)
    reader, writer = await asyncio.open_unix_connection(task._path)
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: task\r\nX-Nomad-Token: \xff\r\nConnection: close\r\n\r\n")
    assert b" 403 " in await reader.readline()
    assert far.asked == []
    writer.close()
    sockets.close()
    await runner.cleanup()


async def test_connections_end_with_the_socket(cluster: Cluster, tmp_path: Path) -> None:
    runner = cluster.api.client.server.runner
    assert runner is not None
    sockets, task = await opened(runner, tmp_path)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(task._path)) as session:
        headers = {"X-Nomad-Token": cluster.root}
        async with session.get("http://task/v1/event/stream", headers=headers) as stream:
            sockets.close()
            with pytest.raises(aiohttp.ClientError):
                await stream.content.readexactly(1_000_000)
