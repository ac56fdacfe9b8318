"""What a region asks the authoritative one over its API, and what it makes of refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import pytest
from yurt.access import Through
from yurt.agent.regions import FarAuthority, RegionLinks
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.http.forwarding.forward import OwnApi, ServerApi
from yurt.sdk.errors import NotFound, Unavailable
from yurt.sdk.value import replace
from yurt.server.config import AclConfig
from yurt.server.resources.region_replication import ACL_KINDS, CLUSTER_KINDS
from yurt.structs import acl
from yurt.structs.shared_rows import KEYS_MAX, row_digest
from yurt.testing.fakes import FakeEnv
from yurt.testing.http_api import Api, serving

ROOT = "00000000-0000-4000-8000-000000000001"
SECRET = "00000000-0000-4000-8000-000000000002"
METHOD = acl.ACLAuthMethod(
    name="corp", type="OIDC", token_locality="local", max_token_ttl=3_600_000_000_000,
    config=acl.ACLAuthMethodConfig(oidc_discovery_url="https://id.example", oidc_client_id="y", oidc_client_secret="s"),
)  # fmt: skip


class Links:
    """The connection to the one other region."""

    def __init__(self, port: ApiPort) -> None:
        self._port = port

    def api(self, region: str) -> ApiPort:
        if region != "west":
            raise NotFound(f"no server of region {region!r} is known")
        return self._port


class Fixed:
    """A region that answers everything alike."""

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = (status, body)

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        yield ApiPart(status=self._answer[0])
        yield ApiPart(data=self._answer[1])


class Paused:
    """A region whose servers are stopped: connections stand and nothing answers."""

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        yield ApiPart(status=200)
        await asyncio.Event().wait()


def authority(port: Any, *, token: str = "", region: str = "west") -> FarAuthority:
    return FarAuthority(cast(RegionLinks, Links(port)), region, token=token)


@pytest.fixture
async def west() -> AsyncIterator[Api]:
    """The authoritative region, with a global and a local token and a login method."""
    async with serving(acl=AclConfig(enabled=True)) as api:
        tokens, policies = api.server.resources.acl_tokens, api.server.resources.acl_policies
        await tokens.bootstrap(ROOT)
        await tokens.create(acl.ACLToken(name="global", policies=("a",), is_global=True), SECRET)
        await tokens.create(acl.ACLToken(name="local", policies=("a",)))
        await policies.put_auth_method(METHOD)
        yield api


@pytest.fixture
async def port(west: Api) -> AsyncIterator[ServerApi]:
    """Its API as a server of region east reaches it."""
    own = OwnApi(str(west.client.make_url("")).rstrip("/"))
    yield ServerApi(own, Through.REGION, "srv-east")
    await own.close()


async def test_only_global_tokens_travel_and_only_with_the_hash_of_their_secret(west: Api, port: ServerApi) -> None:
    east = authority(port, token=ROOT)
    shared = await east.digests("acl_tokens", min_index=0, wait_s=1)
    assert shared.index == west.server.state.acl_tokens.index
    page = await east.rows("acl_tokens", sorted(shared.digests))
    assert sorted(row.name for row in page.rows) == ["Bootstrap Token", "global"]
    assert {row.accessor_id: row_digest(row) for row in page.rows} == shared.digests
    assert all(row == west.server.state.acl_tokens[row.accessor_id] for row in page.rows)
    own = OwnApi(str(west.client.make_url("")).rstrip("/"))
    raw = b"".join([part.data async for part in ServerApi(own, Through.REGION, "e").ask(_rows(shared), _nothing())])
    await own.close()
    assert acl.hash_of_secret(SECRET).encode() in raw and SECRET.encode() not in raw and ROOT.encode() not in raw


async def test_login_methods_travel_with_the_secret_that_a_login_needs(port: ServerApi) -> None:
    page = await authority(port, token=ROOT).rows("acl_auth_methods", ["corp", "unknown"])
    assert [row.config.oidc_client_secret for row in page.rows] == ["s"]


@pytest.mark.parametrize("kind", CLUSTER_KINDS + ACL_KINDS, ids=lambda kind: kind.table)
async def test_every_kind_that_a_region_copies_is_shown(port: ServerApi, kind: Any) -> None:
    shared = await authority(port, token=ROOT).digests(kind.table, min_index=0, wait_s=1)
    page = await authority(port, token=ROOT).rows(kind.table, list(shared.digests))
    assert len(page.rows) == len(shared.digests)


async def test_long_rows_come_in_several_answers(west: Api, port: ServerApi) -> None:
    rules = "# " + "x" * 100_000
    policies = west.server.resources.acl_policies
    for number in range(4):
        await policies.put_policy(acl.ACLPolicy(name=f"p{number}", rules=f'{rules}\nnode {{ policy = "read" }}'))
    page = await authority(port, token=ROOT).rows("acl_policies", [f"p{number}" for number in range(4)])
    assert ([row.name for row in page.rows], page.remaining) == (["p0", "p1", "p2"], ("p3",))


async def test_a_wait_ends_with_a_change(west: Api, port: ServerApi) -> None:
    east = authority(port, token=ROOT)
    index = (await east.digests("acl_policies", min_index=0, wait_s=1)).index
    await west.server.resources.acl_policies.put_policy(acl.ACLPolicy(name="new", rules='node { policy = "read" }'))
    assert "new" in (await east.digests("acl_policies", min_index=max(index, 1), wait_s=30)).digests


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("", "answered 403: Permission denied; acl.replication_token, which is not set, must be the secret of a manag"),
        (SECRET, "answered 403: Permission denied; acl.replication_token, which it refuses, must be the secret of a"),
        ("00000000-0000-4000-8000-00000000dead", "answered 403: Permission denied; acl.replication_token, which it re"),
    ],
)
async def test_a_token_that_may_not_is_refused_with_what_to_do(port: ServerApi, token: str, words: str) -> None:
    with pytest.raises(Unavailable, match='region "west"') as refused:
        await authority(port, token=token).digests("acl_policies", min_index=0, wait_s=1)
    assert words in str(refused.value)
    assert not token or token not in str(refused.value)


async def test_a_replication_token_that_was_revoked_is_refused(west: Api, port: ServerApi) -> None:
    made = await west.server.resources.acl_tokens.create(acl.ACLToken(type=acl.MANAGEMENT, name="replication"))
    east = authority(port, token=made.secret)
    await east.digests("acl_tokens", min_index=0, wait_s=1)
    await west.server.resources.acl_tokens.delete(made.token.accessor_id)
    with pytest.raises(Unavailable, match="which it refuses"):
        await east.digests("acl_tokens", min_index=0, wait_s=1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Fixed(400, b"ACL support disabled"), "enable access control there, or name another server.authoritative_reg"),
        (Fixed(404, b""), "its servers run a version that does not share this: upgrade them first"),
        (Fixed(500, b"No cluster leader"), 'region "west" answered 500: No cluster leader'),
        (Fixed(200, b""), "sent an unreadable answer about acl_policies"),
        (Fixed(200, b"\x80"), "sent an unreadable answer about acl_policies"),
        (Fixed(200, b"[]"), "sent an unreadable answer about acl_policies"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(answer: Fixed, words: str) -> None:
    with pytest.raises(Unavailable) as refused:
        await authority(answer, token=ROOT).digests("acl_policies", min_index=0, wait_s=1)
    assert words in str(refused.value)


async def test_a_paused_region_is_given_up_after_the_wait_and_some() -> None:
    env = FakeEnv()
    east = FarAuthority(cast(RegionLinks, Links(Paused())), "west", token=ROOT, env=env)
    asked = asyncio.ensure_future(east.digests("acl_policies", min_index=5, wait_s=60))
    await env.advance(89)
    assert not asked.done()
    await env.advance(2)
    with pytest.raises(Unavailable, match='region "west" has not answered for 90 s'):
        await asked


async def test_a_region_that_is_not_known_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no server of region 'mars'"):
        await authority(Fixed(200, b""), region="mars").rows("acl_policies", ["a"])


async def test_a_region_without_access_control_shares_namespaces_only() -> None:
    async with serving() as api:
        own = OwnApi(str(api.client.make_url("")).rstrip("/"))
        east = authority(ServerApi(own, Through.REGION, "srv-east"))
        assert "default" in (await east.digests("namespaces", min_index=0, wait_s=1)).digests
        with pytest.raises(Unavailable, match="enable access control there"):
            await east.digests("acl_tokens", min_index=0, wait_s=1)
        await own.close()


async def test_nobody_but_a_server_of_another_region_is_told(west: Api) -> None:
    for path in ("/v1/regions/shared/acl_tokens", "/v1/regions/shared/acl_auth_methods/rows?key=corp"):
        answer = await west.get(path, headers={"X-Nomad-Token": ROOT, "X-Yurt-From-Region": "1"})
        assert (answer.status, answer.text) == (
            403, "only a server of another region may copy what all regions share"
        )  # fmt: skip


async def test_bounds_and_unknown_tables(port: ServerApi) -> None:
    east = authority(port, token=ROOT)
    with pytest.raises(Unavailable, match='regions share no table "variables"'):
        await east.digests("variables", min_index=0, wait_s=1)
    with pytest.raises(Unavailable, match=f"the limit is {KEYS_MAX}"):
        await east.rows("acl_policies", [str(number) for number in range(KEYS_MAX + 1)])


def test_times_of_methods_are_content() -> None:
    assert row_digest(METHOD) != row_digest(replace(METHOD, modify_time=3))


def _rows(shared: Any) -> ApiRequest:
    keys = "&".join(f"key={key}" for key in shared.digests)
    path = f"/v1/regions/shared/acl_tokens/rows?{keys}"
    return ApiRequest(method="GET", path=path, headers={"X-Nomad-Token": ROOT})


async def _nothing() -> AsyncGenerator[bytes]:
    for piece in b"":
        yield bytes([piece])
