"""The route that makes tokens for new clients."""

from __future__ import annotations

from yurt.testing.http_api import NODE_ID, Api

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


class KnownNode:
    """A node that has an identity."""

    renewed = 0

    async def node_identity(self) -> dict[str, object]:
        return {"nomad_node_id": NODE_ID, "exp": 7}

    async def renew_node_identity(self) -> None:
        self.renewed += 1


async def test_the_identity_of_a_node_is_shown_and_renewed(api_with_node: Api) -> None:
    node = KnownNode()
    api_with_node.server.clients.node_ports.attach(NODE_ID, node)  # type: ignore[arg-type]
    shown = await api_with_node.get(f"/v1/client/identity?node_id={NODE_ID}")
    assert shown.json == {"Claims": {"nomad_node_id": NODE_ID, "exp": 7}}
    renewed = await api_with_node.call("POST", "/v1/client/identity/renew", {"NodeID": NODE_ID})
    assert (renewed.status, renewed.json, node.renewed) == (200, {}, 1)


async def test_an_identity_is_one_of_a_known_node(api_with_node: Api) -> None:
    none = await api_with_node.get("/v1/client/identity")
    assert (none.status, none.text) == (400, "No local Node and node_id not provided")
    unknown = await api_with_node.call("PUT", "/v1/client/identity/renew", {"NodeID": "nobody"})
    assert (unknown.status, unknown.text) == (404, 'Unknown node "nobody"')
    away = await api_with_node.get(f"/v1/client/identity?node_id={NODE_ID}")
    assert (away.status, away.text) == (404, "No path to node")
