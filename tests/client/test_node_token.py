"""A node's identity on the client's side: kept, shown, and asked for anew."""

from __future__ import annotations

import base64
import json

import pytest
from yurt.client.servers import node_token
from yurt.client.servers.node_token import decode_token
from yurt.sdk.errors import Invalid, NotFound
from yurt.testing.fakes import FakeServerPort, eventually


def token(number: int = 1, **claims: object) -> str:
    """One that says `claims`; nobody checks its signature here."""
    said = {"iat": 1, "exp": 10, "nomad_node_pool": "default", "nomad_node_datacenter": "dc1", "jti": number} | claims
    parts = [json.dumps(each).encode() for each in ({"alg": "RS256", "kid": "key-1"}, said)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "sig"])


async def test_an_identity_is_shown_and_outlives_the_agent(run_client, server: FakeServerPort):
    server.identity = token()
    async with run_client() as client:
        assert server.identities[0] is not None and server.identities[0].key_id == ""
        assert (await client.calls.node_identity())["jti"] == 1
        await eventually(lambda: server.identities[-1].key_id == "key-1")
        assert (server.identities[-1].issued_at, server.identities[-1].expires_at) == (1, 10)
    server.identities.clear()
    async with run_client():
        assert server.identities[0].key_id == "key-1" and not server.identities[0].must_renew
        assert server.registrations[-1].token == token()


async def test_a_renewal_is_asked_for_at_once_and_only_until_it_came(run_client, server: FakeServerPort):
    server.identity = token()
    async with run_client() as client:
        await eventually(lambda: server.identities[-1].key_id == "key-1")
        server.identities.clear()
        await client.calls.renew_node_identity()
        await eventually(lambda: server.identities and server.identities[-1].must_renew)
        server.identity = token(2)
        await client.calls.renew_node_identity()
        await eventually(lambda: client.calls.token.token == token(2))
        assert not client.calls.token.identity_of(client.node).must_renew


async def test_a_node_that_moved_asks_for_another_one(run_client, server: FakeServerPort):
    server.identity = token(nomad_node_pool="other")
    async with run_client() as client:
        await eventually(lambda: server.identities[-1].must_renew)
        server.identity = token(2)
        await client.calls.renew_node_identity()
        await eventually(lambda: not client.calls.token.identity_of(client.node).must_renew)


async def test_what_is_no_token_is_not_taken(run_client, server: FakeServerPort, caplog: pytest.LogCaptureFixture):
    server.identity = "rubbish"
    async with run_client():
        assert "sent an invalid node identity" in caplog.text
        assert server.identities[-1].key_id == ""


async def test_a_node_without_an_identity_says_so_after_it_has_asked(
    run_client, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node_token, "ASK_LIMIT_S", 0.1)
    async with run_client() as client:
        with pytest.raises(NotFound, match="has no identity"):
            await client.calls.node_identity()
        assert server.identities[-1].must_renew


@pytest.mark.parametrize("text", ["", "a.b", "é.é.é", "e30.W10.x", "e30.!!.x", "." * 9])
def test_rubbish_is_refused(text: str):
    with pytest.raises(Invalid):
        decode_token(text)
