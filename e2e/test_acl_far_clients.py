"""Access control on a client without a server: it decides by what a server says of the caller, for a short time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from yurt.client.tasks.exec_sessions import NEEDS_NODE_EXEC
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs, wait_for

from e2e.test_acl import COUNTING, answer_of, secret_with, token_with
from e2e.test_far_clients import SERVER_ONLY, FarAgent, ServerAgent, rpc_port

TTL_S = 2.0
READ_AGENT = 'agent { policy = "read" }'
MAY = 'namespace "default" {{ capabilities = [{}] }}'
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerAgent, FarAgent]]:
    """A server and a client, with access control; the server's agent acts with a management token."""
    folder = tmp_path_factory.mktemp("far")
    (folder / "server").mkdir()
    (folder / "client").mkdir()
    acl = {"acl": {"enabled": True, "token_ttl": f"{TTL_S:g}s"}}
    main = ServerAgent(folder / "server", data_dir=folder / "server" / "data", name="main", extra=SERVER_ONLY | acl)
    far: FarAgent | None = None
    main.start()
    try:
        main.token = main.call("POST", "/v1/acl/bootstrap")["SecretID"]
        client = {
            "enabled": True,
            "servers": [f"127.0.0.1:{rpc_port(main)}"],
            "options": {"driver.raw_exec.enable": "1"},
        }
        extra = {"server": {"enabled": False}, "client": client} | acl
        far = FarAgent(folder / "client", data_dir=folder / "client" / "data", name="far", extra=extra)
        far.start()
        yield main, far
    finally:
        if main.process is not None and main.process.poll() is None:
            stop_jobs(main)
        for agent in (far, main):
            if agent is not None:
                agent.interrupt()


@pytest.fixture(scope="module")
def alloc_id(agents: tuple[ServerAgent, FarAgent]) -> str:
    """An allocation on the client that writes lines to its log."""
    main, _ = agents
    register(main, raw_exec_job("counting", "/bin/sh", "-c", COUNTING))
    return str(main.running("counting", 1)[0]["ID"])


def revoke(main: Agent, token: dict[str, Any]) -> None:
    main.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")


def refused(far: Agent, path: str, token: str) -> bool:
    return answer_of(far, "GET", path, token=token)[0] == 403


def test_a_client_decides_by_what_a_server_says(agents: tuple[ServerAgent, FarAgent], alloc_id: str) -> None:
    main, far = agents
    reader = secret_with(main, "reader", MAY.format('"read-fs"'))
    listing = f"/v1/client/fs/ls/{alloc_id}?path=/"
    assert answer_of(far, "GET", listing, token=reader)[0] == 200
    assert refused(far, "/v1/agent/self", reader)
    assert refused(far, f"/v1/client/allocation/{alloc_id}/stats", reader)
    assert answer_of(far, "GET", listing, token="")[0] in (403, 404)
    assert answer_of(far, "GET", "/v1/agent/self", token=main.token)[0] == 200


def test_a_revoked_token_stops_working_on_a_client(agents: tuple[ServerAgent, FarAgent], alloc_id: str) -> None:
    main, far = agents
    token = token_with(main, "short-lived", READ_AGENT)
    assert answer_of(far, "GET", "/v1/agent/self", token=token["SecretID"])[0] == 200
    revoke(main, token)
    limit_s = TTL_S + 10  # the bound is TTL_S; the rest is for a loaded machine
    wait_for("the refusal", lambda: refused(far, "/v1/agent/self", token["SecretID"]), timeout_s=limit_s)


def exec_url(far: Agent, alloc_id: str) -> str:
    command = json.dumps(["/bin/sh", "-c", "echo ready; sleep 6000"])
    return f"{far.address}/v1/client/allocation/{alloc_id}/exec?task=main&command={command}"


def test_a_command_ends_with_the_token(agents: tuple[ServerAgent, FarAgent], alloc_id: str) -> None:
    main, far = agents
    token = token_with(main, "operator", MAY.format('"alloc-exec", "alloc-node-exec"'))

    async def converse() -> tuple[Any, Any]:
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession(headers={"X-Nomad-Token": token["SecretID"]}) as session,
            session.ws_connect(exec_url(far, alloc_id)) as socket,
        ):
            assert "stdout" in (await socket.receive()).data
            await asyncio.to_thread(revoke, main, token)
            while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
            return message.data, message.extra

    code, reason = asyncio.run(converse())
    assert (code, reason.partition(":")[0]) == (1008, "Permission denied")


def test_a_command_in_raw_exec_needs_alloc_node_exec(agents: tuple[ServerAgent, FarAgent], alloc_id: str) -> None:
    main, far = agents
    secret = secret_with(main, "developer", 'namespace "default" { policy = "write" }')

    async def ask(agent: Agent) -> tuple[str, Any, Any]:
        """What a websocket says, its close code, and the reason up to its first colon."""
        said = ""
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession(headers={"X-Nomad-Token": secret}) as session,
            session.ws_connect(exec_url(agent, alloc_id)) as socket,
        ):
            while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                said += base64.b64decode(json.loads(message.data)["stderr"]["data"]).decode()
            return said, message.data, message.extra.partition(":")[0]

    assert [asyncio.run(ask(agent)) for agent in (far, main)] == [
        (f"{NEEDS_NODE_EXEC}\n", 1008, "Permission denied")
    ] * 2


@pytest.mark.parametrize(
    "path", ["/v1/event/stream?topic=Job", "/v1/client/fs/logs/ALLOC?task=main&type=stdout&follow=true"]
)
def test_a_stream_through_a_client_breaks_off_with_the_token(
    agents: tuple[ServerAgent, FarAgent], alloc_id: str, path: str
) -> None:
    main, far = agents
    token = token_with(main, "follower", MAY.format('"read-job", "read-logs"'))

    async def follow() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession(headers={"X-Nomad-Token": token["SecretID"]}) as session,
            session.get(far.address + path.replace("ALLOC", alloc_id)) as response,
        ):
            assert response.status == 200
            await response.content.readany()
            await asyncio.to_thread(revoke, main, token)
            with pytest.raises(aiohttp.ClientPayloadError):
                async for _ in response.content.iter_any():
                    pass

    asyncio.run(follow())


def test_a_client_whose_servers_are_gone_refuses(agents: tuple[ServerAgent, FarAgent], alloc_id: str) -> None:
    """The last test of the module: the server does not come back."""
    main, far = agents
    token = main.token
    assert answer_of(far, "GET", "/v1/agent/self", token=token)[0] == 200
    stop_jobs(main)
    main.kill()

    def is_refused() -> str:
        status, text = answer_of(far, "GET", "/v1/agent/self", token=token)
        return text if status == 500 else ""

    assert "no server tells this agent what the token may do" in wait_for("the refusal", is_refused, timeout_s=LIMIT_S)
    assert answer_of(far, "GET", f"/v1/client/fs/ls/{alloc_id}?path=/", token=token)[0] == 500
    assert far.get("/v1/regions") == ["global"], "what needs no right is answered"
