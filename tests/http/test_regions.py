"""Requests for other regions: which of them are passed on, as what, and what is said when there is no way."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from yurt.access import AllowAll
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.http.forwarding_headers import FROM_REGION
from yurt.rpc.peer import ConnectionLost
from yurt.sdk.errors import NotFound
from yurt.server.config import AclConfig
from yurt.testing.http_api import Api, job_document, serving

NO_PATH = (500, "No path to region")


class Far:
    """Region east: it answers everything with its name, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.headers: list[Any] = []

    def api(self, region: str) -> ApiPort:
        if region == "north":
            raise ConnectionLost("no server can be reached: it is dark")
        if region != "east":
            raise NotFound("no server of that region is known")
        return self

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        self.headers.append(request.headers)
        self.asked.append((request.method, request.path, b"".join([piece async for piece in body])))
        yield ApiPart(status=200, headers={"Content-Type": "application/json"})
        yield ApiPart(data=b'"east"')


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
async def west(far: Far) -> AsyncIterator[Api]:
    async with serving(regions=far, authoritative_region="east") as api:
        yield api


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs?stale", "/v1/client/fs/ls/x", "/v1/status/leader"])
async def test_a_region_in_the_query_decides_who_answers(west: Api, far: Far, path: str) -> None:
    joint = "&" if "?" in path else "?"
    assert (await west.get(f"{path}{joint}region=east")).text == '"east"'
    assert far.asked == [("GET", f"{path}{joint}region=east", b"")]
    assert far.headers[0][FROM_REGION] == "1"
    assert (await west.get("/v1/jobs?region=global")).json == []


@pytest.mark.parametrize("path", ["/v1/agent/self", "/v1/regions", "/v1/metrics"])
async def test_what_is_about_the_agent_is_answered_by_it(west: Api, far: Far, path: str) -> None:
    assert (await west.get(f"{path}?region=east")).status == 200
    assert far.asked == []


async def test_a_job_goes_to_the_region_that_it_names(west: Api, far: Far) -> None:
    assert (await west.put("/v1/jobs", {"Job": job_document("far", Region="east")})).text == '"east"'
    ((method, path, body),) = far.asked
    assert (method, path) == ("PUT", "/v1/jobs")
    assert b'"far"' in body
    assert (await west.get("/v1/jobs")).json == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/namespace", {"Name": "web"}),
        ("DELETE", "/v1/namespace/web", None),
        ("PUT", "/v1/node/pools", {"Name": "gpu"}),
        ("PUT", "/v1/node/pool/gpu", {"Name": "gpu"}),
        ("DELETE", "/v1/node/pool/gpu", None),
        ("PUT", "/v1/quota", {"Name": "small"}),
        ("DELETE", "/v1/quota/small", None),
    ],
)
async def test_what_all_regions_share_is_changed_where_it_is_decided(
    west: Api, far: Far, method: str, path: str, body: Any
) -> None:
    assert (await west.call(method, path, body)).text == '"east"'
    assert [each[:2] for each in far.asked] == [(method, path)]


async def test_the_region_that_a_change_of_the_shared_names_does_not_matter(west: Api, far: Far) -> None:
    assert (await west.put("/v1/namespace?region=global", {"Name": "web"})).text == '"east"'
    assert [each[1] for each in far.asked] == ["/v1/namespace?region=east"]
    async with serving(regions=Far(), authoritative_region="global") as authority:
        for headers in ({}, {FROM_REGION: "1"}):
            answer = await authority.call("PUT", "/v1/namespace?region=east", {"Name": "web"}, headers=headers)
            assert answer.status == 200
        assert "web" in [each["Name"] for each in (await authority.get("/v1/namespaces")).json]


async def test_reads_of_what_is_shared_are_answered_from_the_copy(west: Api, far: Far) -> None:
    assert [each["Name"] for each in (await west.get("/v1/namespaces")).json] == ["default"]
    assert far.asked == []


async def test_without_a_way_the_answer_is_nomads(west: Api, api: Api) -> None:
    answer = await west.get("/v1/jobs?region=mars")
    assert (answer.status, answer.text) == NO_PATH
    dark = await west.get("/v1/jobs?region=north")
    assert (dark.status, dark.text) == (500, "No path to region: no server can be reached: it is dark")
    alone = await api.put("/v1/jobs", {"Job": job_document("far", Region="east")})
    assert (alone.status, alone.text) == NO_PATH


@pytest.mark.parametrize(
    ("method", "path", "hop"),
    [("GET", "/v1/jobs?region=east", "1"), ("DELETE", "/v1/namespace/web", "2"), ("DELETE", "/v1/namespace/web", "x")],
)
async def test_a_request_from_another_region_goes_no_further(
    west: Api, far: Far, method: str, path: str, hop: str
) -> None:
    answer = await west.call(method, path, headers={FROM_REGION: hop})
    assert (answer.status, answer.text) == NO_PATH
    assert far.asked == []


async def test_a_shared_change_goes_on_once_from_the_region_that_was_named(west: Api, far: Far) -> None:
    assert (await west.call("DELETE", "/v1/namespace/web", headers={FROM_REGION: "1"})).text == '"east"'
    assert far.headers[0][FROM_REGION] == "2"


async def test_a_global_token_that_another_region_passes_on_keeps_its_body(far: Far) -> None:
    settings = AclConfig(enabled=True)
    async with serving(regions=far, authoritative_region="east", acl=settings, authority=AllowAll()) as api:
        body = b'{"Type": "client", "Policies": ["x"], "Global": true}'

        async def pieces() -> AsyncIterator[bytes]:
            yield body[:9]
            yield body[9:]

        async with api.client.put("/v1/acl/token", data=pieces(), headers={FROM_REGION: "1"}) as answer:
            assert await answer.text() == '"east"'
    assert [each[2] for each in far.asked] == [body]


async def test_a_token_that_was_not_copied_yet_is_revoked_by_the_authority(far: Far) -> None:
    settings = AclConfig(enabled=True)
    async with serving(regions=far, authoritative_region="east", acl=settings, authority=AllowAll()) as api:
        path = "/v1/acl/token/11111111-2222-4333-8444-555555555555"
        assert (await api.call("DELETE", path)).text == '"east"'
    assert [each[:2] for each in far.asked] == [("DELETE", path)]


async def test_a_change_that_only_the_authority_makes_names_its_region(far: Far) -> None:
    settings = AclConfig(enabled=True)
    async with serving(regions=far, authoritative_region="east", acl=settings, authority=AllowAll()) as api:
        body = {"Type": "client", "Policies": ["x"], "Global": True}
        for path in ("/v1/acl/token?region=global", "/v1/acl/token?a=%26b&region=global&c"):
            assert (await api.put(path, body)).text == '"east"'
        assert (await api.put("/v1/acl/token?region=global", {**body, "Global": False})).status == 200
    assert [path for _, path, _ in far.asked] == ["/v1/acl/token?region=east", "/v1/acl/token?a=%26b&region=east&c"]


@pytest.mark.parametrize("path", ["/v1/acl/policy/x", "/v1/acl/role", "/v1/acl/auth-method", "/v1/acl/bootstrap"])
async def test_the_authority_makes_shared_changes_whatever_region_they_name(far: Far, path: str) -> None:
    async with serving(regions=far, authoritative_region="global", acl=AclConfig(enabled=True)) as api:
        answer = await api.call("PUT", f"{path}?region=east", {}, headers={FROM_REGION: "1"})
    assert answer.status in (200, 403) and far.asked == []


async def test_a_complete_list_is_refused_to_whoever_may_not_see_all_of_it() -> None:
    async with serving(acl=AclConfig(enabled=True)) as api:
        made = (await api.call("POST", "/v1/acl/bootstrap")).json
        for path in ("/v1/namespaces?complete=true", "/v1/node/pools?complete=true"):
            assert (await api.get(path)).status == 403
            assert (await api.get(path, headers={"X-Nomad-Token": made["SecretID"]})).json
