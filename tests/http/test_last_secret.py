"""A connection keeps the secret that it showed last: who asks is decided as if it did not."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from yurt.access import Actor, NoToken, Origin
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.authentication import sealed_origin
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.http.forwarding_headers import ORIGIN
from yurt.testing.access import Callers, bootstrapped


class OneConnection:
    """Requests over one connection of the server's own kind."""

    def __init__(self, callers: Callers, session: aiohttp.ClientSession, url: str, connections: Connections) -> None:
        self.callers = callers
        self._session = session
        self._url = url
        self._connections = connections

    async def policies(self, token: str) -> tuple[int, list[str]]:
        """The status, and the names of the caller's policies where it is 200."""
        headers = {"X-Nomad-Token": token} if token else {}
        async with self._session.get(f"{self._url}/v1/acl/token/self", headers=headers) as response:
            return response.status, (await response.json())["Policies"] if response.status == 200 else []

    async def status(self, path: str, token: str, **headers: str) -> int:
        """The status of a GET."""
        shown = {"X-Nomad-Token": token, **headers}
        async with self._session.get(f"{self._url}{path}", headers=shown) as response:
            return response.status

    @property
    def protocol(self) -> ApiProtocol:
        """The connection at the server's end: there is one."""
        (found,) = (each for place in self._connections._places.values() for each in place)
        return found


@pytest.fixture(params=[True, False], ids=["logged", "repeated past aiohttp"])
async def connection(request: pytest.FixtureRequest) -> AsyncIterator[OneConnection]:
    """An agent that logs requests takes none past aiohttp (`yurt.http.plain_reads.fast_path`)."""
    options = HTTP_OPTIONS if request.param else {**HTTP_OPTIONS, "access_log": None}
    async with bootstrapped() as callers:
        app = make_app(callers.api.server.http, None, AgentInfo(name="test"))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        connections = Connections(strangers=app[STRANGERS], options=options)
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        await ServedAddress(runner, listening, connections, tls=None, handshake_s=0).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
                yield OneConnection(callers, session, url, connections)
        finally:
            await runner.cleanup()


async def test_a_secret_that_is_shown_again_is_the_same_caller(connection: OneConnection) -> None:
    secret = (await connection.callers.token("ops"))["SecretID"]
    assert await connection.policies(secret) == (200, ["ops"])
    first = connection.protocol.last_secret
    assert first is not None and first.text == secret
    assert await connection.policies(secret) == (200, ["ops"])
    assert connection.protocol.last_secret is first


async def test_each_secret_of_a_connection_is_its_own_caller(connection: OneConnection) -> None:
    ops, dev = [(await connection.callers.token(name))["SecretID"] for name in ("ops", "dev")]
    for token, expected in ((ops, (200, ["ops"])), (dev, (200, ["dev"])), (ops, (200, ["ops"]))):
        assert await connection.policies(token) == expected
    for token in (ops[:-1], ops + "0", ops[:-1] + "\u00e9", str(uuid.UUID(int=7))):
        assert await connection.policies(token) == (403, []), token
    assert await connection.policies(ops.upper()) == (200, ["ops"])
    assert (await connection.policies(""))[1] == ["anonymous"]
    assert await connection.policies(ops) == (200, ["ops"])


async def test_a_revoked_token_is_refused_on_the_connection_that_showed_it(connection: OneConnection) -> None:
    made = await connection.callers.token("ops")
    assert await connection.policies(made["SecretID"]) == (200, ["ops"])
    assert (await connection.callers.call("DELETE", f"/v1/acl/token/{made['AccessorID']}")).status == 200
    assert await connection.policies(made["SecretID"]) == (403, [])


async def test_a_text_that_is_no_stored_secret_is_not_kept(connection: OneConnection) -> None:
    assert (await connection.policies(str(uuid.UUID(int=7))))[0] == 403
    assert connection.protocol.last_secret is None


JOBS = "/v1/jobs?namespace=default"
READS = 'namespace "default" { policy = "read" }'


async def asked_often(connection: OneConnection, secret: str, path: str = JOBS) -> None:
    """Ask until the connection knows what was decided."""
    for _ in range(3):
        assert await connection.status(path, secret) == 200
    last = connection.protocol.last_secret
    assert last is not None and any(each.recalled is not None for each in last.decisions.values())


async def put_rules(connection: OneConnection, name: str, rules: str) -> None:
    answer = await connection.callers.put(f"/v1/acl/policy/{name}", {"Name": name, "Rules": rules})
    assert answer.status == 200


async def test_what_a_connection_knows_ends_with_a_policy_that_changes(connection: OneConnection) -> None:
    await put_rules(connection, "reads", READS)
    secret = (await connection.callers.token("reads"))["SecretID"]
    await asked_often(connection, secret)
    await put_rules(connection, "reads", READS.replace("default", "dev"))
    assert await connection.status(JOBS, secret) == 403
    await put_rules(connection, "reads", READS)
    await asked_often(connection, secret)


async def test_what_a_connection_knows_ends_with_its_token(connection: OneConnection) -> None:
    await put_rules(connection, "reads", READS)
    made = await connection.callers.token("reads")
    await asked_often(connection, made["SecretID"])
    assert (await connection.callers.call("DELETE", f"/v1/acl/token/{made['AccessorID']}")).status == 200
    assert await connection.status(JOBS, made["SecretID"]) == 403


async def test_what_a_connection_knows_is_of_one_namespace_one_route_and_one_secret(connection: OneConnection) -> None:
    await put_rules(connection, "reads", READS)
    secret = (await connection.callers.token("reads"))["SecretID"]
    await asked_often(connection, secret)
    assert await connection.status("/v1/jobs?namespace=dev", secret) == 403
    assert await connection.status("/v1/nodes", secret) == 403
    assert await connection.status(JOBS, str(uuid.UUID(int=7))) == 403
    assert await connection.status(JOBS, secret[:-1] + "\u00e9") == 403
    await asked_often(connection, secret)


async def test_what_a_connection_knows_ends_when_the_token_expires(
    connection: OneConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_rules(connection, "reads", READS)
    secret = (await connection.callers.token("reads", ExpirationTTL="1h"))["SecretID"]
    await asked_often(connection, secret)
    authority = connection.callers.api.server.authority
    later = authority._now() + 3601 * 10**9
    monkeypatch.setattr(authority, "_now", lambda: later)
    assert await connection.status(JOBS, secret) == 403


async def test_what_a_connection_knows_ends_when_the_state_is_old(
    connection: OneConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_rules(connection, "reads", READS)
    secret = (await connection.callers.token("reads"))["SecretID"]
    await asked_often(connection, secret)

    class Old:
        newest_at_s, state_age_s = -1e9, 1e9

    monkeypatch.setattr(connection.callers.api.server.authority, "_age", Old())
    assert await connection.status(JOBS, secret) == 500


async def test_a_request_that_is_passed_on_does_not_use_what_its_connection_knows(connection: OneConnection) -> None:
    await put_rules(connection, "reads", READS)
    secret = (await connection.callers.token("reads"))["SecretID"]
    await asked_often(connection, secret)
    last = connection.protocol.last_secret
    assert last is not None
    last.decisions.update({key: known._replace(actor=Actor(caller=NoToken())) for key, known in last.decisions.items()})
    for origin in (sealed_origin(Origin(address="203.0.113.7")), "forged"):
        assert await connection.status(JOBS, secret, **{ORIGIN: origin}) == 200
