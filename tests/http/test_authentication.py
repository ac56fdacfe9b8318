"""Where a request came from: believed of the agents that pass it on, and of nobody's headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request
from yurt.access import Actor, Decision, Need, Origin, Scope, Through
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.http.authentication import ADDRESS_MAX, sealed_origin
from yurt.http.call import CONTEXT, identified
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.forwarding.forward import NodeApi, OwnApi, ServerApi
from yurt.http.forwarding_headers import BY_SERVER, FORWARDED, ORIGIN
from yurt.sdk.value import replace
from yurt.testing.access import bootstrapped
from yurt.testing.http_api import Api, serving

USER = Origin(address="203.0.113.7", certificate_name="cli.global.nomad")
READ = ApiRequest(method="GET", path="/v1/jobs", origin=USER)


class Recorder:
    """Allows everything and keeps where requests came from."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []

    def recall(self, actor: Actor, need: Need, scope: Scope) -> None:
        return None

    def fixed(self, actor: Actor, need: Need) -> Recorder:
        return self

    def preparation(self, actor: Actor) -> None:
        return None

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        self.origins.append(actor.origin)
        return True

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        return Decision(is_allowed=self.allows(actor, need, scope), reason="a test")

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        return False

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> None:
        return None

    def standing(self, actor: Actor) -> None:
        return None


class Kept:
    """An API that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[ApiRequest] = []

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        self.asked.append(request)
        yield ApiPart(status=200)


async def no_body() -> AsyncGenerator[bytes]:
    for piece in b"":
        yield bytes([piece])


async def ask(api: ApiPort, request: ApiRequest) -> None:
    async with aclosing(api.ask(request, no_body())) as parts:
        answers = [part async for part in parts]
    assert answers[0].status == 200


def address_of(api: Api) -> str:
    return str(api.client.make_url("/")).rstrip("/")


async def test_what_a_server_passes_on_comes_from_where_its_user_was() -> None:
    seen = Recorder()
    async with serving(authority=seen) as api:
        own = OwnApi(address_of(api))
        await ask(ServerApi(own, Through.SERVER, "s2.global"), READ)
        await ask(NodeApi(own, "a node"), READ)
        await own.close()
    of_server, of_node = dict.fromkeys(seen.origins)
    assert of_server == replace(USER, through=Through.SERVER, relay="s2.global")
    assert of_node == Origin(address=USER.address, through=Through.NODE, relay="a node")


@pytest.mark.parametrize("guess", ["", "x", "secret e30=", sealed_origin(USER)[1:]])
async def test_a_header_of_a_stranger_says_nothing(guess: str) -> None:
    seen = Recorder()
    async with serving(authority=seen) as api:
        answer = await api.get("/v1/jobs", headers={ORIGIN: guess, FORWARDED: BY_SERVER})
    assert answer.status == 200
    assert set(seen.origins) == {Origin(address="127.0.0.1")}


async def test_the_sealed_header_does_not_leave_the_agent_and_is_not_taken_from_a_frame() -> None:
    seen, far = Recorder(), Kept()
    async with serving(authority=seen) as api:
        own = OwnApi(address_of(api))
        await ask(own, replace(READ, headers={ORIGIN.lower(): sealed_origin(Origin(address="forged"))}))
        await own.close()
    assert set(seen.origins) == {USER}
    await ask(NodeApi(far, "a node"), replace(READ, headers={ORIGIN: "x", "X-Nomad-Token": "t"}))
    assert {name.lower() for name in far.asked[0].headers} == {"x-nomad-token", "x-yurt-from-node"}


async def test_a_node_proves_itself_and_nothing_of_its_users() -> None:
    far = Kept()
    claimed = Origin(address="a" * 500, certificate_name="server.global.nomad", through=Through.SERVER, relay="s1")
    await ask(NodeApi(far, "a node"), replace(READ, origin=claimed))
    assert far.asked[0].origin == Origin(address="a" * ADDRESS_MAX, through=Through.NODE, relay="a node")


async def test_a_server_keeps_what_is_known_of_the_way_before_it() -> None:
    far, of_node = Kept(), Origin(through=Through.NODE, relay="a node")
    for through in (Through.SERVER, Through.REGION):
        await ask(ServerApi(far, through, "s2.global"), replace(READ, origin=of_node))
        await ask(ServerApi(far, through, "s2.global"), READ)
    assert [each.origin.through for each in far.asked] == [
        Through.NODE, Through.SERVER, Through.NODE, Through.REGION,
    ]  # fmt: skip


async def test_a_request_that_is_passed_on_comes_from_its_own_place_though_its_connection_showed_the_secret() -> None:
    async with bootstrapped() as callers:
        app, secret = callers.api.client.server.app, callers.root["SecretID"]
        connection: Any = Mock(spec=ApiProtocol)
        connection.origin = connection.last_secret = None

        async def actor(**headers: str) -> Actor:
            shown = {"X-Nomad-Token": secret, **headers}
            request = make_mocked_request(
                "GET", "/v1/jobs", headers=shown, app=app, transport=asyncio.Transport(), protocol=connection
            )
            return await identified(app[CONTEXT], request)

        own, again = await actor(), await actor()
        assert again is own and connection.last_secret is not None, "the connection remembers who asks"
        passed_on = await actor(**{ORIGIN: sealed_origin(USER)})
        assert (passed_on.origin, passed_on.caller) == (USER, own.caller)
        assert await actor() is own
        assert (await actor(**{ORIGIN: "forged"})).origin == own.origin
