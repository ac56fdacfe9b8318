"""An agent without a server decides by what a server says of the caller, for a bounded time, and else not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.access import ANYWHERE, Actor, Scope, needs
from yurt.access.needs import Capability
from yurt.client.client import Client
from yurt.http import leases
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.call import AUTHORITY, RIGHTS
from yurt.http.forwarding.forward import NodeApi, OwnApi
from yurt.http.server_authority import FAILED_S, REFUSED_S, ServerAuthority
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import Duration
from yurt.server.config import AclConfig
from yurt.structs.rpc import CallerRights, NamespaceRights, ShownCredential
from yurt.testing.fakes import FakeEnv
from yurt.testing.http_api import Api, serving

from tests.http.test_leases import ACCESSOR, ALLOC, EXEC, LOGS, NAMESPACE, SECRET, FakeNode, grant, rest_of, revoke

READ_JOB = needs.namespace(Capability.READ_JOB)
OWN = Scope(namespace="own")
TTL_S = 30.0
READER = CallerRights(kind="known", namespaces=(NamespaceRights(label="own", capabilities=("read-job",)),))
NOBODY = CallerRights(kind="nobody")
LIMIT_S = 30.0


class Servers:
    """Servers that answer with the rights of the only caller, and count how often they are asked."""

    def __init__(self) -> None:
        self.rights = READER
        self.failure: YurtError | None = None
        self.asked: list[ShownCredential] = []
        self.delay_s = 0.0
        self.env = FakeEnv()
        self.authority = ServerAuthority(self.ask, self.env, ttl_s=TTL_S)

    async def ask(self, shown: ShownCredential) -> CallerRights:
        self.asked.append(shown)
        rights = self.rights
        if self.delay_s:
            await self.env.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        return rights

    def actor(self, token: str = SECRET) -> Actor:
        return Actor(caller=self.authority.caller(token))

    async def allows(self, token: str = SECRET, *, is_refused: bool = False) -> bool:
        await self.authority.learn(self.actor(token), token, is_refused=is_refused)
        return self.authority.allows(self.actor(token), READ_JOB, OWN)


async def test_rights_are_kept_for_their_time_and_no_longer() -> None:
    servers = Servers()
    assert await servers.allows()
    servers.rights = NOBODY
    await servers.env.advance(TTL_S - 0.1)
    assert await servers.allows()
    assert len(servers.asked) == 1
    await servers.env.advance(0.1)
    assert not await servers.allows()
    assert len(servers.asked) == 2


async def test_without_an_answer_rights_end_with_their_time() -> None:
    servers = Servers()
    assert await servers.allows()
    servers.failure = Unavailable("no server can be reached: refused")
    await servers.env.advance(TTL_S - 1)
    assert await servers.allows(), "what is known counts while no server answers"
    await servers.env.advance(1)
    with pytest.raises(Unavailable, match=r"decides nothing.*no server can be reached"):
        await servers.allows()
    assert not servers.authority.allows(servers.actor(), READ_JOB, OWN)
    assert not servers.authority.allows_everywhere(servers.actor(), needs.NODE_READ)
    assert servers.authority.allows(servers.actor(), needs.ANONYMOUS, ANYWHERE)
    assert "no server tells" in servers.authority.decide(servers.actor(), READ_JOB, OWN).reason


async def test_the_time_counts_from_the_question() -> None:
    servers = Servers()
    servers.delay_s = 3.0
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(servers.allows())
        await servers.env.advance(servers.delay_s)
        assert await asking
    servers.rights, servers.delay_s = NOBODY, 0.0
    await servers.env.advance(TTL_S - 3.0)
    assert not await servers.allows()


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    servers = Servers()
    servers.delay_s = 1_000.0
    asking = asyncio.ensure_future(servers.allows())
    await servers.env.advance(5.0)
    with pytest.raises(Unavailable, match="none answered within 5 s"):
        await asking
    with pytest.raises(Unavailable):
        await servers.allows("another token")
    assert len(servers.asked) == 1, "for a moment no server is asked again"
    servers.delay_s = 0.0
    await servers.env.advance(FAILED_S)
    assert await servers.allows()


async def test_rights_end_with_the_token() -> None:
    servers = Servers()
    servers.rights = CallerRights(kind="management", lifetime=Duration(5_000_000_000))
    assert await servers.allows()
    servers.rights = NOBODY
    await servers.env.advance(5.0)
    assert not await servers.allows()


async def test_rights_that_refuse_are_asked_for_again_soon() -> None:
    servers = Servers()
    servers.rights = NOBODY
    assert not await servers.allows()
    servers.rights = READER
    assert not await servers.allows(is_refused=True), "an answer of this moment is not asked for again"
    await servers.env.advance(REFUSED_S)
    assert await servers.allows()
    await servers.env.advance(REFUSED_S)
    assert await servers.allows(is_refused=True)
    assert len(servers.asked) == 3


async def test_a_caller_is_asked_for_once_at_a_time() -> None:
    servers = Servers()
    servers.delay_s = 1.0
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(servers.allows()) for _ in range(20)]
        await servers.env.advance(1.0)
        assert all([await each for each in asking])
    assert len(servers.asked) == 1


async def test_strangers_do_not_push_out_who_is_known() -> None:
    servers = Servers()
    assert await servers.allows()
    servers.rights = NOBODY
    for number in range(2_000):
        await servers.allows(f"stranger {number}")
    count = len(servers.asked)
    assert await servers.allows()
    assert len(servers.asked) == count


async def test_a_secret_does_not_leave_the_agent_and_an_identity_is_taken_as_it_is_spelled() -> None:
    servers = Servers()
    for token in (SECRET, SECRET.upper(), "", "eyJ.a.b", "EYJ.a.b"):
        await servers.allows(token)
    assert [bool(each.identity) for each in servers.asked] == [False, False, True, True]
    assert SECRET not in repr(servers.asked)


async def test_no_server_is_asked_about_what_cannot_be_a_token() -> None:
    servers = Servers()
    for token in ("\udcff\udcfe", "é"):
        assert not await servers.allows(token, is_refused=True)
        assert servers.authority.identify(servers.actor(token)).resolved_by == "invalid token"
    assert servers.asked == []


# With a real server.


class Agents:
    """A server with access control, and an agent without a server."""

    def __init__(self, api: Api, client: TestClient[Any, Any], node: FakeNode, authority: ServerAuthority) -> None:
        self.api = api
        self.client = client
        self.node = node
        self.authority = authority

    def get(self, path: str, token: str = SECRET) -> Any:
        return self.client.get(path, headers={"X-Nomad-Token": token} if token else {})

    async def answer(self, path: str, token: str = SECRET) -> tuple[int, str]:
        async with self.get(path, token) as response:
            return response.status, await response.text()


@asynccontextmanager
async def agents(env: FakeEnv) -> AsyncIterator[Agents]:
    node = FakeNode()
    async with serving(acl=AclConfig(enabled=True)) as api:
        own = OwnApi(str(api.client.make_url("/")).rstrip("/"))
        app = make_app(None, cast("Client", node), AgentInfo(name="c", acl_enabled=True), servers=NodeApi(own, "n"))
        ask = partial(api.server.clients.calls.caller_rights, "n")
        authority = app[AUTHORITY] = app[RIGHTS] = ServerAuthority(ask, env, ttl_s=TTL_S)
        async with TestClient(TestServer(app)) as client:
            yield Agents(api, client, node, authority)
        await own.close()


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> FakeEnv:
    monkeypatch.setattr(leases, "CHECK_S", 0.02)
    return FakeEnv()


async def test_a_revoked_token_stops_working_on_an_agent_without_a_server(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, 'agent { policy = "read" }')
        assert (await them.answer("/v1/agent/self"))[0] == 200
        await revoke(them.api)
        await env.advance(TTL_S - 1)
        assert (await them.answer("/v1/agent/self"))[0] == 200, "the cache still counts"
        await env.advance(1)
        assert await them.answer("/v1/agent/self") == (403, "Permission denied")


async def test_what_is_open_on_such_an_agent_ends_with_the_cache(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.format('"read-logs", "alloc-exec"'))
        async with (
            them.get(LOGS) as response,
            them.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket,
        ):
            await response.content.readany()
            await socket.receive()
            await revoke(them.api)
            await env.advance(TTL_S)
            await rest_of(response)
            assert (await socket.receive()).data == 1008


async def test_an_open_log_ends_when_no_server_answers_any_more(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.format('"read-logs"'))
        async with them.get(LOGS) as response:
            await response.content.readany()

            async def ask(shown: ShownCredential) -> CallerRights:
                raise Unavailable("no server can be reached")

            them.authority._ask = ask
            await env.advance(TTL_S)
            await rest_of(response)
        status, text = await them.answer("/v1/agent/self")
        assert status == 500
        assert "no server can be reached" in text
        assert (await them.answer("/v1/agent/health"))[0] == 200, "what needs no right is answered"


async def test_a_new_right_counts_at_once(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.format('"read-job"'))
        assert (await them.answer("/v1/agent/self"))[0] == 403
        await grant(them.api, 'agent { policy = "read" }')
        await env.advance(REFUSED_S)
        assert (await them.answer("/v1/agent/self"))[0] == 200


async def test_the_namespace_is_the_allocations_and_a_refusal_does_not_tell_that_it_exists(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.replace("default", "other").format('"read-logs"'))
        for path in (LOGS, LOGS + "&namespace=other"):
            status, text = await them.answer(path)
            assert (status, text) == (404, f'Unknown allocation "{ALLOC}"')
        unknown = LOGS.replace(ALLOC, ALLOC.replace("a", "b"))
        assert (await them.answer(unknown))[0] == 404
        await grant(them.api, NAMESPACE.format('"read-job"'))
        assert (await them.answer(LOGS))[0] == 403


async def test_what_servers_answer_is_decided_there(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.format('"list-jobs", "read-job"'))
        assert await them.answer("/v1/jobs") == (200, "[]")
        await revoke(them.api)
        assert (await them.answer("/v1/jobs"))[0] == 403, "no cache lies between"
        assert ACCESSOR not in them.api.server.state.acl_tokens


async def test_servers_without_access_control_are_no_reason_to_allow(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), serving() as api:
        app = make_app(None, None, AgentInfo(name="c", acl_enabled=True))
        ask = partial(api.server.clients.calls.caller_rights, "n")
        app[AUTHORITY] = app[RIGHTS] = ServerAuthority(ask, env, ttl_s=TTL_S)
        async with TestClient(TestServer(app)) as client, client.get("/v1/agent/self") as answer:
            assert answer.status == 500
            assert "on all agents" in await answer.text()


async def test_a_websocket_without_a_right_is_closed_with_the_reason(env: FakeEnv) -> None:
    async with asyncio.timeout(LIMIT_S), agents(env) as them:
        await grant(them.api, NAMESPACE.format('"read-job"'))
        async with them.client.ws_connect(EXEC, headers={"X-Nomad-Token": SECRET}) as socket:
            last = await socket.receive()
        assert (last.type, last.data, last.extra) == (aiohttp.WSMsgType.CLOSE, 1008, "Permission denied")
