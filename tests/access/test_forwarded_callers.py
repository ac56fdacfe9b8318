"""A request that another agent passes on is decided about by its caller's token alone, whatever that agent says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.access import Origin, Through
from yurt.http import leases
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPort, ApiRequest
from yurt.http.app import make_app
from yurt.http.authentication import sealed_origin
from yurt.http.forwarding.forward import NodeApi, OwnApi, ServerApi
from yurt.http.forwarding_headers import FORWARDED, FROM_NODE, FROM_REGION, ORIGIN
from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import RealEnv
from yurt.server.config import AclConfig
from yurt.structs.commands import RegisterNode
from yurt.structs.rpc import RegisterNodeRequest, StreamFrame
from yurt.testing.access import READ_PROD, Callers, bootstrapped
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.fakes import eventually
from yurt.testing.http_api import NODE_ID, Api, HttpAnswer, job_document, ready_node, serving

FIRST, SECOND, THIRD = NAMES
FORWARDERS: Mapping[str, Callable[[ApiPort], ApiPort]] = {
    "a server": lambda api: ServerApi(api, Through.SERVER, "liar.global"),
    "a server of another region": lambda api: ServerApi(api, Through.REGION, "liar.mars"),
    "a node": lambda api: NodeApi(api, NODE_ID),
}
JOB = json.dumps({"Job": job_document("web", Namespace="prod")}).encode()
PROTECTED: tuple[tuple[str, str, bytes], ...] = (
    ("PUT", "/v1/jobs?namespace=prod", JOB), ("GET", "/v1/jobs?namespace=prod", b""), ("GET", "/v1/acl/tokens", b""),
    ("PUT", "/v1/acl/token", b'{"Type": "management"}'), ("PUT", "/v1/namespace", b'{"Name": "mine"}'),
    ("GET", "/v1/var/secret?namespace=prod", b""), ("PUT", f"/v1/node/{NODE_ID}/eligibility", b"{}"),
    ("GET", "/v1/regions/shared/acl_policies", b""), ("PUT", "/v1/operator/keyring/rotate", b""),
)  # fmt: skip
LIES: Mapping[str, ApiRequest] = {
    "nothing": ApiRequest(method="", path=""),
    "a server's certificate": ApiRequest(
        method="", path="", origin=Origin(address="127.0.0.1", certificate_name="server.global.nomad")
    ),
    "another way": ApiRequest(method="", path="", origin=Origin(through=Through.SERVER, relay="server.global")),
    "marks of agents": ApiRequest(
        method="", path="", headers={FORWARDED: "server", FROM_REGION: "1", FROM_NODE: "", "X-Yurt-Client": "x"}
    ),
    "a sealed origin": ApiRequest(
        method="", path="", headers={ORIGIN.lower(): sealed_origin(Origin(certificate_name="server.global.nomad"))}
    ),
    "a guessed token": ApiRequest(method="", path="", headers={"X-Nomad-Token": NODE_ID}),
    "a session that it made": ApiRequest(
        method="", path="", headers={"X-Nomad-Token": "ys_AAAA", "Cookie": "yurt=ys_A"}
    ),
}


@pytest.fixture
async def leader() -> AsyncIterator[tuple[Callers, OwnApi]]:
    """A server with access control, and how connections of other agents reach its API."""
    async with bootstrapped() as callers:
        await callers.put("/v1/namespace", {"Name": "prod"})
        await callers.api.server.replica.propose(RegisterNode(node=ready_node()))
        await callers.put("/v1/var/secret?namespace=prod", {"Namespace": "prod", "Items": {"a": "b"}})
        own = OwnApi(str(callers.api.client.make_url("")).rstrip("/"))
        yield callers, own
        await own.close()


async def asked(api: ApiPort, method: str, path: str, body: bytes, lie: ApiRequest) -> int:
    """The status of what an agent asks over its connection."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    request = ApiRequest(
        method=method, path=path, headers=lie.headers, has_body=bool(body), origin=lie.origin, is_socket=lie.is_socket
    )
    parts = [part async for part in api.ask(request, pieces())]
    return parts[0].status


@pytest.mark.parametrize("forwarder", FORWARDERS)
async def test_no_forwarder_gains_rights_by_what_it_says(leader: tuple[Callers, OwnApi], forwarder: str) -> None:
    _, own = leader
    api = FORWARDERS[forwarder](own)
    for told, lie in LIES.items():
        for method, path, body in PROTECTED:
            # Without a token nobody sees the variable: then it is as if it did not exist.
            assert await asked(api, method, path, body, lie) in (403, 404), (told, method, path)


@pytest.mark.parametrize("forwarder", FORWARDERS)
async def test_the_token_of_the_caller_counts_and_not_that_of_the_forwarder(
    leader: tuple[Callers, OwnApi], forwarder: str
) -> None:
    callers, own = leader
    weak = await callers.secret_for(READ_PROD)
    app = make_app(
        None, None, AgentInfo(version="0.1.0", name="c", acl_enabled=True), servers=FORWARDERS[forwarder](own)
    )
    async with TestClient(TestServer(app)) as client:
        for secret, expected in ((callers.root["SecretID"], (200, 200)), (weak, (200, 403)), ("", (403, 403))):
            headers = {"X-Nomad-Token": secret} if secret else {}
            async with client.get("/v1/jobs?namespace=prod", headers=headers) as answer:
                assert answer.status == expected[0], secret
            async with client.put("/v1/jobs", data=JOB, headers=headers) as answer:
                assert answer.status == expected[1], secret


class Recorded:
    """An API that remembers what it was asked."""

    def __init__(self, api: ApiPort) -> None:
        self._api = api
        self.requests: list[ApiRequest] = []

    def api(self, _: str) -> ApiPort:
        return self

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> Any:
        self.requests.append(request)
        async with contextlib.aclosing(self._api.ask(request, body)) as parts:
            async for part in parts:
                yield part


@contextlib.asynccontextmanager
async def joined() -> AsyncIterator[dict[str, tuple[Api, Recorded]]]:
    """Three servers with access control of which the first leads, with how the others reach each."""
    group = ServerGroup(RealEnv(), acl=AclConfig(enabled=True))
    async with group.running(), contextlib.AsyncExitStack() as stack:
        made: dict[str, tuple[Api, Recorded]] = {}

        class Others:
            def api(self, name: str) -> ApiPort:
                return made[name][1]

        for name in NAMES:
            app = make_app(group[name].http, None, AgentInfo(version="0.1.0", name=name), others=Others())
            client = await stack.enter_async_context(TestClient(TestServer(app)))
            own = OwnApi(str(client.make_url("")).rstrip("/"))
            stack.push_async_callback(own.close)
            made[name] = Api(client, group[name]), Recorded(ServerApi(own, Through.SERVER, name))
        await eventually(lambda: group[FIRST].is_leader)
        # A new cluster's log has an entry: streams begin at a follower that has applied it.
        await eventually(lambda: all(group[name].leader.newest_at_s > -math.inf for name in NAMES))
        yield made


async def test_a_server_that_follows_passes_on_its_callers_token_and_adds_none() -> None:
    async with joined() as servers:
        (leader, asked_of_leader), (follower, _) = servers[FIRST], servers[SECOND]
        root = (await leader.call("POST", "/v1/acl/bootstrap")).json["SecretID"]
        callers, through = Callers(leader, {"SecretID": root}), Callers(follower, {"SecretID": root})
        await callers.put("/v1/namespace", {"Name": "prod"})
        weak = await callers.secret_for(READ_PROD)

        async def put(secret: str) -> HttpAnswer:
            body = {"Job": job_document("web", Namespace="prod")}
            return await through.call("PUT", "/v1/jobs", body, token=secret)

        asked_of_leader.requests.clear()
        assert [(await put(secret)).status for secret in (weak, "", root)] == [403, 403, 200]
        shown = [request.headers.get("X-Nomad-Token") for request in asked_of_leader.requests]
        assert shown == [weak, None, root]


class LogNode:
    """A client that sends a line of a log, and then is reached no more."""

    async def stream_logs(self, *_: object, **__: object) -> AsyncGenerator[StreamFrame]:
        yield StreamFrame(data=b"a line", file="alloc/logs/main.stdout.0")
        raise ConnectionLost("the connection to the other agent has ended")

    async def list_files(self, *_: object) -> tuple[object, ...]:
        raise ConnectionLost("the connection to the other agent has ended")


async def until_broken(answer: aiohttp.ClientResponse) -> bytes:
    """The rest of a stream that breaks off."""
    found = b""
    async with asyncio.timeout(20):
        with pytest.raises(aiohttp.ClientPayloadError):
            async for piece in answer.content.iter_any():
                found += piece
    return found


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_streams_at_a_follower_end_with_the_rights_of_their_reader(
    monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    monkeypatch.setattr(leases, "CHECK_S", 0.05)
    async with joined() as servers:
        leader, follower = servers[FIRST][0], servers[SECOND][0]
        callers = Callers(leader, {"SecretID": (await leader.call("POST", "/v1/acl/bootstrap")).json["SecretID"]})
        await callers.put("/v1/namespace", {"Name": "prod"})
        await callers.policy("logs", 'namespace "prod" { policy = "read" capabilities = ["read-logs"] }')
        token, node = await callers.token("logs"), ready_node()
        await leader.server.clients.calls.register_node(RegisterNodeRequest(node=node))
        await leader.server.clients.calls.heartbeat(node.id, "ready")
        follower.server.clients.node_ports.attach(node.id, LogNode())  # type: ignore[arg-type]
        await callers.put("/v1/jobs", {"Job": job_document("web", Namespace="prod")})
        await eventually(lambda: len(leader.server.state.allocs) == 1)
        headers = {"X-Nomad-Token": token["SecretID"], "Accept-Encoding": "identity"}
        view = json.dumps({"ID": "a", "Kind": "jobs", "Namespace": "prod"})
        logs = "/v1/yurt/job/web/logs?follow=true&type=stdout&namespace="
        async with (
            follower.client.get(f"{logs}prod", headers=headers) as followed,
            follower.client.get("/v1/yurt/watch", params={"view": view}, headers=headers) as watched,
            follower.client.get(f"{logs}default", headers=headers) as other,
        ):
            assert (followed.status, watched.status, other.status) == (200, 200, 403)
            await followed.content.readline()
            assert json.loads(await followed.content.readline())["Text"] == "a line"
            if is_deleted:
                await callers.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")
            else:
                await callers.policy("logs", 'namespace "default" { policy = "read" }')
            assert b"Error" not in await until_broken(followed)
            assert b"Permission denied" in await until_broken(watched)


async def test_another_region_decides_by_the_token_of_the_caller() -> None:
    async with bootstrapped() as east:
        await east.put("/v1/namespace", {"Name": "prod"})
        weak = await east.secret_for(READ_PROD)
        own = OwnApi(str(east.api.client.make_url("")).rstrip("/"))
        far = Recorded(ServerApi(own, Through.REGION, "west"))
        async with serving(acl=AclConfig(enabled=True), regions=far, region="west", facts={"region": "west"}) as west:
            own_root = (await west.call("POST", "/v1/acl/bootstrap")).json["SecretID"]
            body = {"Job": job_document("web", Namespace="prod")}
            path = "/v1/jobs?region=global&namespace=prod"
            # A management token of this region is unknown in the other one.
            for secret, expected in ((own_root, 403), (weak, 403), ("", 403), (east.root["SecretID"], 200)):
                headers = {"X-Nomad-Token": secret} if secret else {}
                assert (await west.call("PUT", path, body, headers=headers)).status == expected, secret
                assert far.requests[-1].headers.get("X-Nomad-Token") == (secret or None)
            assert (await west.get(path, headers={"X-Nomad-Token": weak})).status == 200
        await own.close()
