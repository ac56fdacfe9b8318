"""Logins whose tokens count in all regions are the authoritative region's; others are made where they are asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.sdk.value import seconds
from yurt.server.config import AclConfig
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig
from yurt.structs.commands import UpsertACLAuthMethod
from yurt.testing.http_api import Api, serving

CONFIG = ACLAuthMethodConfig(
    oidc_discovery_url="http://127.0.0.1:1", oidc_client_id="yurt", jwks_url="http://127.0.0.1:1/keys"
)
REQUESTS: dict[str, dict[str, str]] = {
    "/v1/acl/login": {"LoginToken": "x"},
    "/v1/acl/oidc/auth-url": {"RedirectURI": "http://localhost:4649/oidc/callback", "ClientNonce": "n"},
    "/v1/acl/oidc/complete-auth": {"RedirectURI": "http://localhost:4649/oidc/callback", "ClientNonce": "n",
                                   "State": "st_x", "Code": "c"},
}  # fmt: skip


class East:
    """The authoritative region, which answers with its name."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def api(self, region: str) -> ApiPort:
        assert region == "east"
        return self

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        self.asked.append((request.path, json.loads(b"".join([piece async for piece in body]))))
        yield ApiPart(status=200, headers={"Content-Type": "application/json"})
        yield ApiPart(data=b'"east"')


@pytest.fixture
def east() -> East:
    return East()


@pytest.fixture
async def west(east: East) -> AsyncIterator[Api]:
    """A region that has copies of a global and a local method."""
    async with serving(acl=AclConfig(enabled=True), regions=east, authoritative_region="east") as api:
        for kind in ("JWT", "OIDC"):
            for locality in ("global", "local"):
                method = ACLAuthMethod(
                    name=f"{kind}-{locality}", type=kind, token_locality=locality, max_token_ttl=seconds(600),
                    config=CONFIG,
                )  # fmt: skip
                await api.server.replica.propose(UpsertACLAuthMethod(method=method))
        yield api


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_login_by_a_global_method_is_the_authoritative_regions(west: Api, east: East, path: str) -> None:
    kind = "JWT" if path == "/v1/acl/login" else "OIDC"
    body = {"AuthMethodName": f"{kind}-global", **REQUESTS[path]}
    assert (await west.put(path, body)).text == '"east"'
    assert east.asked == [(path, body)]


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_login_by_a_local_method_stays_here(west: Api, east: East, path: str) -> None:
    kind = "JWT" if path == "/v1/acl/login" else "OIDC"
    answer = await west.put(path, {"AuthMethodName": f"{kind}-local", **REQUESTS[path]})
    assert answer.status in (401, 500) and east.asked == [] and len(west.server.state.acl_tokens) == 0
