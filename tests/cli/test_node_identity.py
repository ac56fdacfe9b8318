"""`yurt node identity`."""

from __future__ import annotations

import json
from typing import Any

NODE = "6f1c9b1e-0000-4000-8000-000000000001"
CLAIMS = {"aud": "nomadproject.io", "exp": 1_700_086_400, "iat": 1_700_000_000, "nomad_node_id": NODE, "sub": "node:x"}


def known(api: Any) -> None:
    node = {"ID": NODE, "Name": "one", "Datacenter": "dc1", "Status": "ready"}
    api.answers["/v1/nodes"], api.answers[f"/v1/node/{NODE}"] = [node], node
    api.answers["/v1/client/identity"] = {"Claims": CLAIMS}
    api.answers["/v1/client/identity/renew"] = {}


def test_the_claims_are_a_table_with_times_to_read(api: Any, run: Any) -> None:
    known(api)
    code, text, _ = run("node", "identity", "get", NODE[:8])
    assert code == 0
    rows = [line.split(None, 1) for line in text.splitlines()]
    assert rows[0][0] == "Claim"
    assert [row[0] for row in rows[1:]] == ["aud", "exp", "iat", "sub", "nomad_node_id"]
    assert rows[2][1] == "2023-11-15T22:13:20Z"


def test_the_claims_are_data_when_asked_for(api: Any, run: Any) -> None:
    known(api)
    code, text, _ = run("node", "identity", "get", "-json", NODE)
    assert (code, json.loads(text)) == (0, CLAIMS)


def test_a_renewal_names_the_whole_id_and_says_nothing(api: Any, run: Any) -> None:
    known(api)
    assert run("node", "identity", "renew", NODE[:8]) == (0, "", "")
    assert api.asked[-1][3] == {"NodeID": NODE}


def test_a_node_that_has_none_is_an_error(api: Any, run: Any) -> None:
    known(api)
    api.answers["/v1/client/identity"] = (404, "this node has no identity")
    code, _, error = run("node", "identity", "get", NODE)
    assert code == 1 and "this node has no identity" in error
