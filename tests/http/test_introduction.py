"""The route that makes tokens for new clients."""

from __future__ import annotations

from yurt.testing.http_api import Api

ROUTE = "/v1/acl/identity/client-introduction-token"


async def test_a_token_is_made_with_and_without_wishes(api: Api) -> None:
    for body in (None, {}, {"TTL": 60_000_000_000, "NodeName": "one", "NodePool": "gpu"}):
        answer = await api.call("POST", ROUTE, body)
        assert answer.status == 200, answer.text
        assert answer.json["JWT"].count(".") == 2


async def test_a_token_that_lasts_too_long_is_refused(api: Api) -> None:
    answer = await api.call("POST", ROUTE, {"TTL": 3_600_000_000_000})
    assert answer.status == 400
    assert "max_identity_ttl" in answer.text
