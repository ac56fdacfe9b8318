"""What the connection of a node carries to the API of a server, over real sockets; and what nobody's does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yurt.agent.config import AgentConfig
from yurt.agent.remote_agents import FarClients
from yurt.agent.tls import TlsSettings
from yurt.client.ports import ServerPort
from yurt.http.api_port import ApiPort, ApiRequest
from yurt.http.forwarding_headers import FORWARDED, FROM_NODE
from yurt.http.route_table import ROUTES
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.proxy import far_port
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import NotFound, PermissionDenied, YurtError
from yurt.sdk.value import replace
from yurt.server.config import IntroductionConfig
from yurt.structs.rpc import RegisterNodeRequest, TemplateQuery
from yurt.testing import factories
from yurt.testing.fakes import eventually
from yurt.testing.http_api import Api
from yurt.testing.unique_ports import free_ports

MINT = "/v1/acl/identity/client-introduction-token"
REFUSED = (
    "/v1/acl/{path}", MINT, "/v1/agent/force-leave", "/v1/agent/health", "/v1/agent/join",
    "/v1/agent/keyring/install", "/v1/agent/keyring/list", "/v1/agent/keyring/remove", "/v1/agent/keyring/use",
    "/v1/agent/reload", "/v1/agent/schedulers",
    "/v1/agent/schedulers/config", "/v1/agent/self", "/v1/agent/servers", "/v1/metrics",
    "/v1/operator/autopilot/configuration", "/v1/operator/autopilot/health", "/v1/operator/keyring/key/{id}",
    "/v1/operator/keyring/keys", "/v1/operator/keyring/rotate", "/v1/operator/license",
    "/v1/operator/raft/configuration", "/v1/operator/raft/peer", "/v1/operator/raft/transfer-leadership",
    "/v1/operator/scheduler/configuration", "/v1/operator/snapshot",
    "/v1/operator/upgrade-check/vault-workload-identity", "/v1/operator/utilization",
    "/v1/regions/shared/{table}", "/v1/regions/shared/{table}/rows", "/v1/system/gc",
    "/v1/system/reconcile/summaries", "/v1/yurt/plugin/{name}/reload", "/v1/yurt/plugins",
)  # fmt: skip
"""All routes that a node's connection does not carry."""
NODE = factories.node(secret_id="a secret", status="initializing")


class Ends:
    """What an agent that has connected sees of the server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.server: ServerPort = far_port(contract_of(ServerPort), "server", link.peer)
        self._api: ApiPort = far_port(contract_of(ApiPort), "api", link.peer)

    async def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        """One request over the connection."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        parts = [part async for part in self._api.ask(ApiRequest(method=method, path=path, headers=named), nothing())]
        return parts[0].status, b"".join(part.data for part in parts).decode()


async def nothing() -> AsyncGenerator[bytes]:
    for piece in ():
        yield piece


@asynccontextmanager
async def connected(api: Api, hello: Hello) -> AsyncIterator[Ends]:
    """An agent connected to the rpc port of the server behind the API."""
    (port,) = free_ports(1)
    url = api.client.make_url("/")
    config = AgentConfig(
        name="test", rpc_address="127.0.0.1", rpc_port=port, http_addresses=(str(url.host),), http_port=url.port or 0
    )
    far = FarClients(config, api.server.rpc, TlsSettings(), run_of=lambda _: "")
    await far.start()
    link = Link((f"127.0.0.1:{port}",), dialler=Dialler(lambda: hello), serves={}, env=RealEnv())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(link.run())
        try:
            yield Ends(link)
        finally:
            running.cancel()
            await far.stop()


def client_hello(**changes: str) -> Hello:
    given = {"version": "1", "region": "global", "name": "n", "node_id": NODE.id, "secret_id": NODE.secret_id}
    return Hello(**(given | changes))


def demand_introductions(api: Api) -> None:
    api.server.clients.introductions._config = replace(
        api.server.config, introduction=IntroductionConfig(enforcement="strict")
    )


def test_every_route_is_carried_or_refused_by_decision() -> None:
    refused = {route.path for route in ROUTES if not route.from_nodes}
    assert {re.sub(r"\{(\w+):[^{}]*\}", r"{\1}", path) for path in refused} == set(REFUSED)


async def test_a_stranger_cannot_introduce_itself_and_may_only_register(api: Api) -> None:
    demand_introductions(api)
    async with connected(api, client_hello()) as stranger:
        for method, path in (("POST", MINT), ("GET", "/v1/jobs"), ("GET", "/v1/nodes")):
            with pytest.raises(NotFound, match="is not registered"):
                await stranger.ask(method, path)
        query = TemplateQuery(node_id=NODE.id, alloc_id="a", task="t", kind="services")
        calls = (
            stranger.server.pull_allocs(NODE.id, min_index=0, timeout_s=0),
            stranger.server.ask_for_template(query),
            stranger.server.register_services(NODE.id, ()),
            stranger.server.heartbeat(NODE.id, "ready"),
        )
        for call in calls:
            with pytest.raises(NotFound):
                await call
        with pytest.raises(PermissionDenied, match="is not introduced"):
            await stranger.server.register_node(RegisterNodeRequest(node=NODE))
    assert NODE.id not in api.server.state.nodes


@pytest.mark.parametrize("region", ["global", "mars"])
async def test_a_stranger_is_not_taken_for_a_server(api: Api, region: str) -> None:
    hello = client_hello(role="server", region=region, name=f"stranger.{region}")
    async with connected(api, hello) as stranger:
        await eventually(lambda: "not known here; servers meet on the serf port" in stranger.link.problem)
        assert not stranger.link.server


async def test_a_registered_node_passes_on_requests_of_users_and_none_that_rule_the_cluster(api: Api) -> None:
    demand_introductions(api)
    token = await api.server.clients.introductions.make()
    async with connected(api, client_hello(intro_token=token)) as agent:
        await agent.server.register_node(RegisterNodeRequest(node=NODE))
        assert (await agent.ask("GET", "/v1/jobs"))[0] == 200
        assert (await agent.ask("GET", f"/v1/node/{NODE.id}"))[0] == 200
        refused = (
            ("POST", MINT), ("GET", "/v1/operator/keyring/keys"), ("GET", "/v1/operator/snapshot"),
            ("PUT", "/v1/operator/raft/transfer-leadership"), ("GET", "/v1/%6fperator/keyring/keys"),
            ("GET", "/v1/operator/keyring/keys?region=mars"), ("GET", "/v1/operator/keyring/keys?stale"),
        )  # fmt: skip
        for method, path in refused:
            status, text = await agent.ask(method, path)
            assert status == 403, path
            assert "ask a server at its own HTTP address" in text
        assert (await agent.ask("GET", "/v1/jobs/../operator/keyring/keys"))[0] == 404
        assert (await agent.ask("GET", "//v1/operator/keyring/keys"))[0] == 301  # to the path that is refused above


async def test_a_node_cannot_take_the_mark_off_its_requests(api: Api) -> None:
    async with connected(api, client_hello()) as agent:
        await agent.server.register_node(RegisterNodeRequest(node=NODE))
        for name in (FROM_NODE, FROM_NODE.lower(), FORWARDED):
            status, _ = await agent.ask("POST", MINT, **{name.replace("-", "_"): ""})
            assert status == 403, name


async def test_a_node_that_was_purged_is_a_stranger_again(api: Api) -> None:
    async with connected(api, client_hello()) as agent:
        await agent.server.register_node(RegisterNodeRequest(node=NODE))
        await api.server.resources.nodes.purge(NODE.id)
        with pytest.raises(YurtError, match="not registered"):
            await agent.ask("GET", "/v1/jobs")


async def test_operators_reach_these_routes_at_the_servers_own_address(api: Api) -> None:
    assert (await api.get("/v1/operator/keyring/keys")).status == 200
