"""Others check identities: with PyJWT as the relying party, by discovery document and public keys alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from yurt.server.peers import RootKey
from yurt.structs.commands import PutRootKey
from yurt.structs.rpc import IdentityQuery
from yurt.structs.variable import KEY_ACTIVE, RootKeyMeta
from yurt.testing import factories
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, serving

ISSUER = "https://nomad.example.com"
IDENTITIES = [
    {"Name": "aws", "Audience": ["sts.example"], "TTL": 3_600_000_000_000, "File": True, "ExtraClaims": ["unit"]}
]


class Relying:
    """A third party that trusts the issuer."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def claims(self, token: str, audience: str) -> dict[str, Any]:
        """The claims, once all that the party checks is right."""
        document = (await self._api.get("/.well-known/openid-configuration")).json
        assert document["jwks_uri"].startswith(ISSUER)
        keys = (await self._api.get(document["jwks_uri"].removeprefix(ISSUER))).json
        header = jwt.get_unverified_header(token)
        found = {each["kid"]: each for each in keys["keys"]}[header["kid"]]
        claims: dict[str, Any] = jwt.decode(
            token, jwt.PyJWK(found), algorithms=document["id_token_signing_alg_values_supported"], audience=audience,
            issuer=document["issuer"], options={"require": ["sub", "iat", "nbf", "jti"]},
        )  # fmt: skip
        return claims


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(data_dir=str(tmp_path), oidc_issuer=ISSUER) as found:
        await add_ready_node(found)
        await found.server.keys.root_keys.active()
        yield found


async def placed(api: Api) -> str:
    """A running allocation of a job with an identity for a third party."""
    job = job_document()
    job["TaskGroups"][0]["Tasks"][0]["Identities"] = IDENTITIES
    assert (await api.put("/v1/jobs", {"Job": job})).status == 200
    state = await api.server.replica.wait_past(
        [("allocs", "job", ("default", "web"))],
        lambda state: state.allocs.count_where("job", ("default", "web")),
        min_index=0,
        timeout_s=30,
    )
    return state.allocs.where("job", ("default", "web"))[0].id


async def token(api: Api, alloc_id: str, name: str = "aws") -> str:
    query = IdentityQuery(node_id=NODE_ID, alloc_id=alloc_id, task="main", name=name)
    return (await api.server.clients.calls.sign_identity(query)).token


async def test_the_document_says_where_the_keys_are(api: Api) -> None:
    answer = await api.get("/.well-known/openid-configuration")
    assert answer.json == {
        "issuer": ISSUER,
        "jwks_uri": f"{ISSUER}/.well-known/jwks.json",
        "id_token_signing_alg_values_supported": ["RS256", "EdDSA"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
    }


async def test_without_an_issuer_there_is_no_document() -> None:
    async with serving() as api:
        answer = await api.get("/.well-known/openid-configuration")
        assert (answer.status, answer.text) == (404, "OIDC Discovery endpoint disabled")


async def test_a_third_party_accepts_an_identity_for_its_audience_only(api: Api) -> None:
    claims = {"RequiredExtraClaims": {"team": "payments"}, "OptionalExtraClaims": {"unit": "${node.pool}"}}
    assert (await api.put("/v1/namespace/default", {"Name": "default"} | claims)).status == 200
    alloc_id = await placed(api)
    found = await Relying(api).claims(await token(api, alloc_id), "sts.example")
    assert (found["nomad_job_id"], found["nomad_allocation_id"], found["nomad_task"]) == ("web", alloc_id, "main")
    assert found["sub"] == "global:default:web:group:main:aws"
    assert found["exp"] - found["iat"] == 3600
    assert found["extra_claims"] == {"team": "payments", "unit": "default"}
    with pytest.raises(jwt.InvalidAudienceError):
        await Relying(api).claims(await token(api, alloc_id), "another.example")
    default = await Relying(api).claims(await token(api, alloc_id, "default"), "nomadproject.io")
    assert "exp" not in default and default["extra_claims"] == {"team": "payments"}


async def test_identities_stay_valid_over_a_rotation_and_new_ones_have_the_new_key(api: Api) -> None:
    alloc_id = await placed(api)
    before = await token(api, alloc_id)
    made = await api.server.keys.root_keys.rotate(is_full=False)
    after = await token(api, alloc_id)
    assert jwt.get_unverified_header(after)["kid"] == made.key_id != jwt.get_unverified_header(before)["kid"]
    for each in (before, after):
        assert (await Relying(api).claims(each, "sts.example"))["nomad_task"] == "main"


async def test_a_key_that_is_published_ahead_can_be_fetched_before_it_signs(api: Api) -> None:
    await placed(api)
    active = await api.server.keys.root_keys.active()
    ahead = await api.server.keys.root_keys.rotate(
        is_full=False, publish_time=api.server.replica.env.now() + 60_000_000_000
    )
    keys = (await api.get("/.well-known/jwks.json")).json["keys"]
    assert {each["kid"] for each in keys} == {active.key_id, ahead.key_id}


async def test_keys_without_an_rsa_half_sign_by_eddsa(api: Api) -> None:
    alloc_id = await placed(api)
    old = RootKey(key_id=factories.number_id(7, kind=8), secret=bytes(range(32)), pem=b"")
    api.server.keys.keyring.add(old)
    meta = RootKeyMeta(key_id=old.key_id, create_time=api.server.replica.env.now(), state=KEY_ACTIVE)
    await api.server.replica.propose(PutRootKey(key=meta))
    signed = await token(api, alloc_id)
    assert jwt.get_unverified_header(signed) == {"alg": "EdDSA", "kid": old.key_id, "typ": "JWT"}
    assert (await Relying(api).claims(signed, "sts.example"))["nomad_task"] == "main"
    (key,) = [each for each in (await api.get("/.well-known/jwks.json")).json["keys"] if each["kid"] == old.key_id]
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("OKP", "Ed25519", "EdDSA", "sig")
    assert sorted(key) == ["alg", "crv", "kid", "kty", "use", "x"], "no private part"


async def test_readers_keep_keys_for_a_bounded_time(api: Api) -> None:
    await placed(api)
    answer = await api.get("/.well-known/jwks.json")
    found = re.fullmatch(r"public, max-age=(\d+)", answer.headers["Cache-Control"])
    assert found is not None
    half_s = api.server.config.root_key_rotation_s / 2
    assert 0.99 * half_s <= int(found[1]) <= 1.1 * half_s + 1
    assert answer.index > 0


async def test_keys_that_are_due_are_kept_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    async with serving(data_dir=str(tmp_path), root_key_rotation_s=100.0) as api:
        await api.server.keys.root_keys.active()
        assert (await api.get("/.well-known/jwks.json")).headers["Cache-Control"] == "public, max-age=900"


async def test_a_reader_waits_for_the_next_key(api: Api) -> None:
    await placed(api)
    index = (await api.get("/.well-known/jwks.json")).index
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(api.get(f"/.well-known/jwks.json?index={index}&wait=30s"))
        await api.server.keys.root_keys.rotate(is_full=False)
    assert len(waiting.result().json["keys"]) == 2
