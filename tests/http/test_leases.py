"""Requests that stay open end with the rights of their callers, and never look whole when they do."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
from yurt.access import EVERYBODY, Access, Scope, needs
from yurt.client.client import Client
from yurt.http import leases
from yurt.http.leases import Lease, OpenLeases
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import PermissionDenied, Unavailable, YurtError
from yurt.server.config import AclConfig
from yurt.structs.acl import ACLPolicy, ACLToken, hash_of_secret
from yurt.structs.commands.acl import CreateACLToken, DeleteACLTokens, UpsertACLPolicies
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.rpc import StreamFrame
from yurt.testing.authorities import Grants
from yurt.testing.http_api import Api, serving

ALLOC = "aaaaaaaa-2222-4333-8444-555555555555"
ACCESSOR, SECRET = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
LIMIT_S = 30.0
EXEC = f"/v1/client/allocation/{ALLOC}/exec?task=t&command=%5B%22sh%22%5D"
LOGS = f"/v1/client/fs/logs/{ALLOC}?task=t&type=stdout&follow=true"
ENDED = "Permission denied: the rights of this request have ended"


class FakeNode:
    """A node with one allocation, whose commands and logs last until somebody ends them."""

    def __init__(self, *, is_node_exec: bool = False) -> None:
        self.is_node_exec = is_node_exec
        self.requests: list[ExecRequest] = []
        self.ended = asyncio.Event()

    @property
    def calls(self) -> FakeNode:
        return self

    node_id = "n"
    is_ready = True

    def facts(self) -> dict[str, str]:
        return {"node_id": self.node_id}

    def alloc_namespace(self, alloc_id: str) -> str | None:
        return "default" if alloc_id == ALLOC else None

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        self.requests.append(request)
        try:
            yield ExecFrame(is_node_exec=self.is_node_exec)
            yield ExecFrame(stream="stdout", data=b"ready")
            async for _ in inputs:
                pass
        finally:
            self.ended.set()

    async def stream_logs(self, alloc_id: str, task: str, **_: Any) -> AsyncGenerator[StreamFrame]:
        try:
            yield StreamFrame(data=b"a line", file="stdout", offset=6)
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_S", 0.02)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def api(node: FakeNode) -> AsyncIterator[Api]:
    async with serving(acl=AclConfig(enabled=True), client=cast("Client", node)) as found:
        yield found


async def grant(api: Api, rules: str) -> None:
    """Give the token's policy these rules; the token exists from the first time on."""
    await api.server.replica.propose(UpsertACLPolicies(policies=(ACLPolicy(name="p", rules=rules),)))
    if ACCESSOR not in api.server.state.acl_tokens:
        token = ACLToken(accessor_id=ACCESSOR, secret_hash=hash_of_secret(SECRET), type="client", policies=("p",))
        await api.server.replica.propose(CreateACLToken(token=token))


async def revoke(api: Api) -> None:
    await api.server.replica.propose(DeleteACLTokens(accessor_ids=(ACCESSOR,)))


def opened(api: Api, path: str) -> Any:
    return api.client.get(path, headers={"X-Nomad-Token": SECRET})


async def rest_of(response: aiohttp.ClientResponse) -> bytes:
    """What comes until the answer breaks off; fails when it ends as a whole one does."""
    found = b""
    with pytest.raises(aiohttp.ClientPayloadError):
        async for piece in response.content.iter_any():
            found += piece
    return found


NAMESPACE = 'namespace "default" {{ capabilities = [{}] }}'


@pytest.mark.parametrize("path", [LOGS, LOGS + "&plain=true"])
async def test_a_followed_log_breaks_off_when_its_token_is_deleted(api: Api, node: FakeNode, path: str) -> None:
    await grant(api, NAMESPACE.format('"read-logs"'))
    async with asyncio.timeout(LIMIT_S), opened(api, path) as response:
        assert response.status == 200
        await response.content.readany()
        await revoke(api)
        assert await rest_of(response) == b""
        await node.ended.wait()


async def test_the_agents_log_breaks_off_when_its_token_is_deleted(api: Api) -> None:
    await grant(api, 'agent { policy = "read" }')
    async with asyncio.timeout(LIMIT_S), opened(api, "/v1/agent/monitor?plain=true&log_level=warn") as response:
        assert response.status == 200
        await revoke(api)
        await rest_of(response)


async def test_a_command_ends_with_the_token_and_says_why(api: Api, node: FakeNode) -> None:
    await grant(api, NAMESPACE.format('"alloc-exec"'))
    async with asyncio.timeout(LIMIT_S):
        async with api.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket:
            assert json.loads((await socket.receive()).data)["stdout"]
            await revoke(api)
            message = await socket.receive()
            assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 1008, ENDED)
        await node.ended.wait()


async def test_a_command_beside_the_node_ends_with_the_right_to_it(api: Api, node: FakeNode) -> None:
    node.is_node_exec = True
    await grant(api, NAMESPACE.format('"alloc-exec", "alloc-node-exec"'))
    async with asyncio.timeout(LIMIT_S):
        async with api.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket:
            await socket.receive()
            await grant(api, NAMESPACE.format('"alloc-exec"'))
            assert (await socket.receive()).data == 1008
        await node.ended.wait()
    assert [request.is_node_exec_allowed for request in node.requests] == [True]


async def test_a_command_is_asked_for_without_the_right_that_the_caller_lacks(api: Api, node: FakeNode) -> None:
    await grant(api, NAMESPACE.format('"alloc-exec"'))
    async with asyncio.timeout(LIMIT_S), api.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket:
        await socket.receive()
    assert [request.is_node_exec_allowed for request in node.requests] == [False]


async def test_a_websocket_is_refused_by_closing_it(api: Api, node: FakeNode) -> None:
    await grant(api, NAMESPACE.format('"read-job"'))
    async with asyncio.timeout(LIMIT_S), api.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket:
        last = await socket.receive()
    assert (last.type, last.data, last.extra) == (aiohttp.WSMsgType.CLOSE, 1008, "Permission denied")
    assert node.requests == []


async def test_an_idle_event_stream_ends_with_the_token_and_says_why(api: Api) -> None:
    await grant(api, NAMESPACE.format('"read-job"'))
    async with asyncio.timeout(LIMIT_S), opened(api, "/v1/event/stream?topic=Job") as response:
        assert await response.content.readline() == b"{}\n"
        await revoke(api)
        told = json.loads(await rest_of(response))
        assert told["Error"].startswith("subscription closed by server, client should resubscribe: Permission denied")


async def test_an_event_stream_ends_with_its_topic(api: Api) -> None:
    await grant(api, NAMESPACE.format('"read-job"') + 'node { policy = "read" }')
    async with asyncio.timeout(LIMIT_S), opened(api, "/v1/event/stream?topic=Job&topic=Node") as response:
        await response.content.readline()
        await grant(api, NAMESPACE.format('"read-job"'))
        assert b"Permission denied" in await rest_of(response)


async def test_a_stream_of_a_token_that_lives_goes_on(api: Api) -> None:
    await grant(api, NAMESPACE.format('"read-job"'))
    async with asyncio.timeout(LIMIT_S), opened(api, "/v1/event/stream?topic=Job") as response:
        await response.content.readline()
        await asyncio.sleep(0.2)  # ten checks
        await api.server.replica.propose(UpsertACLPolicies(policies=(ACLPolicy(name="other", rules=""),)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await response.content.readline()


async def test_a_blocking_query_is_refused_when_it_wakes_without_its_token(api: Api) -> None:
    await grant(api, NAMESPACE.format('"list-jobs", "read-job"'))
    before = await api.get("/v1/jobs", headers={"X-Nomad-Token": SECRET})
    path = f"/v1/jobs?index={before.index or 1}&wait=2s"  # 0 before the first job, and 0 waits for nothing
    waiting = asyncio.ensure_future(api.get(path, headers={"X-Nomad-Token": SECRET}))
    await asyncio.sleep(0.2)
    await revoke(api)
    async with asyncio.timeout(LIMIT_S):
        assert ((await waiting).status, (await waiting).text) == (403, "Permission denied")


# The lease itself.


async def held(lease: Lease) -> YurtError:
    lease.begin(Scope(namespace="default"))
    async with asyncio.timeout(LIMIT_S):
        try:
            await lease.lost()
        except YurtError as error:
            return error
        finally:
            await lease.close()


def access() -> Access:
    return Access(EVERYBODY, needs.namespace(needs.Capability.READ_JOB), Grants("default", needs.Capability.READ_JOB))


async def test_a_lease_ends_when_nobody_can_tell_what_the_caller_may_do() -> None:
    async def learn() -> None:
        raise Unavailable("no server answers")

    assert str(await held(Lease(access(), OpenLeases(RealEnv()), learn))) == "no server answers"


async def test_a_lease_ends_when_its_check_breaks() -> None:
    async def learn() -> None:
        raise RuntimeError("a bug")

    assert isinstance(await held(Lease(access(), OpenLeases(RealEnv()), learn)), PermissionDenied)


async def test_a_lease_ends_with_what_the_handler_has_added() -> None:
    async def learn() -> None: ...

    lease = Lease(access(), OpenLeases(RealEnv()), learn)
    lease.also_needs(Scope(namespace="other"))
    assert isinstance(await held(lease), PermissionDenied)
