"""A connection keeps the secret that it showed last: who asks is decided as if it did not."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from yurt.agent.node import HTTP_OPTIONS
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.protocol import ApiProtocol
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

    @property
    def protocol(self) -> ApiProtocol:
        """The connection at the server's end: there is one."""
        (found,) = (each for place in self._connections._places.values() for each in place)
        return found


@pytest.fixture
async def connection() -> AsyncIterator[OneConnection]:
    async with bootstrapped() as callers:
        app = make_app(callers.api.server.http, None, AgentInfo(name="test"))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        connections = Connections(strangers=app[STRANGERS], options=HTTP_OPTIONS)
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
