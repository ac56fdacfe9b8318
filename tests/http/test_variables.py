"""The routes of variables and root keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.testing.http_api import Api

PATH = "/v1/var/nomad/jobs/web"


async def put(api: Api, path: str = PATH, query: str = "", **items: str) -> Any:
    return await api.put(path + query, {"Items": items or {"user": "anna"}})


async def test_a_variable_is_written_read_listed_and_purged(api: Api) -> None:
    written = await put(api)
    assert written.status == 200
    assert written.json["Path"] == "nomad/jobs/web"
    read = await api.get(PATH)
    assert read.json == written.json
    assert read.json["Items"] == {"user": "anna"} and "Lock" not in read.json
    assert read.headers["X-Nomad-Index"] == str(read.json["ModifyIndex"])
    (row,) = (await api.get("/v1/vars?prefix=nomad/")).json
    assert "Items" not in row and row["ModifyIndex"] == read.json["ModifyIndex"]
    assert (await api.get("/v1/vars?prefix=other")).json == []
    gone = await api.call("DELETE", PATH)
    assert (gone.status, gone.text) == (204, "")
    assert ((await api.get(PATH)).status, (await api.get(PATH)).text) == (404, "variable not found")


async def test_keys_of_items_keep_their_case(api: Api) -> None:
    assert (await put(api, Path="1", items="2", ITEMS="3")).json["Items"] == {"Path": "1", "items": "2", "ITEMS": "3"}


async def test_a_conflict_answers_the_variable_as_it_is(api: Api) -> None:
    assert (await put(api, query="?cas=0")).status == 200
    refused = await put(api, query="?cas=0", user="bert")
    assert refused.status == 409 and refused.json["Items"] == {"user": "anna"}
    assert (await put(api, query=f"?cas={refused.json['ModifyIndex']}", user="bert")).status == 200
    assert (await api.call("DELETE", f"{PATH}?cas=1")).status == 409


@pytest.mark.parametrize(
    ("path", "body", "code", "text"),
    [
        ("/v1/var/", {"Items": {"a": "b"}}, 400, "missing variable path"),
        (PATH, {}, 400, "variable missing required Items object"),
        (f"{PATH}?cas=1&lock-acquire", {"Items": {"a": "b"}}, 400, "CAS can't be used with lock operations"),
        (f"{PATH}?lock-renew&lock-acquire", {"Items": {"a": "b"}}, 400, "multiple lock operations"),
        (f"{PATH}?cas=x", {"Items": {"a": "b"}}, 400, "Failed to parse value"),
        (f"{PATH}?lock-renew", {}, 400, "missing lock ID"),
        (f"{PATH}?lock-acquire", {"Lock": {"TTL": "1s"}}, 400, "must be between 10s and 24h"),
        (f"{PATH}?lock-acquire", {"Lock": {"TTL": "soon"}}, 400, 'Lock.TTL: "soon" is not a valid duration'),
        ("/v1/var/nomad/x", {"Items": {"a": "b"}}, 400, "only paths at"),
        (PATH, {"Path": "other", "Items": {"a": "b"}}, 400, "does not match"),
        (f"{PATH}?namespace=nope", {"Items": {"a": "b"}}, 404, "nonexistent namespace"),
    ],
)
async def test_a_bad_write_is_refused_with_words(api: Api, path: str, body: Any, code: int, text: str) -> None:
    answer = await api.put(path, body)
    assert answer.status == code and text in answer.text


async def test_a_lock_is_acquired_renewed_and_released(api: Api) -> None:
    held = (await api.put(f"{PATH}?lock-acquire", {"Lock": {"TTL": "30s"}, "Items": {"a": "b"}})).json
    assert held["Lock"]["TTL"] == "30s" and held["Lock"]["LockDelay"] == "15s"
    other = await put(api)
    assert other.status == 409 and other.json["Lock"]["ID"] == ""
    lock = {"Lock": {"ID": held["Lock"]["ID"]}}
    assert (await api.put(f"{PATH}?lock-renew", lock)).json["Lock"]["ID"] == held["Lock"]["ID"]
    assert (await api.put(f"{PATH}?lock-renew", {"Lock": {"ID": "x"}})).status == 409
    assert (await api.put(PATH, {"Items": {"a": "c"}, **lock})).status == 200
    released = (await api.put(f"{PATH}?lock-release", lock)).json
    assert not {"Lock", "Items"} & released.keys() and released["Path"] == "nomad/jobs/web"
    assert (await api.get(PATH)).json["Items"] == {"a": "c"}
    assert (await put(api)).status == 200


@pytest.mark.parametrize(
    ("state", "operation", "lock", "status", "text"),
    [
        ("absent", "lock-renew", "x", 404, "variable not found"),
        ("absent", "lock-release", "x", 404, "variable not found"),
        ("unlocked", "lock-renew", "x", 409, ""),
        ("unlocked", "lock-release", "x", 409, ""),
        ("locked", "lock-renew", "x", 409, ""),
        ("locked", "lock-release", "x", 409, ""),
        ("locked", "lock-acquire", "x", 409, ""),
        ("locked", "lock-acquire", "", 409, ""),
        ("locked", "lock-renew", "", 400, "missing lock ID"),
        ("locked", "lock-release", "", 400, "missing lock ID"),
        ("locked", "cas=0", "", 409, ""),
        ("unlocked", "lock-release&lock-renew", "x", 400, "multiple lock operations"),
        ("unlocked", "lock-release&cas=1", "x", 400, "CAS can't be used with lock operations"),
    ],
)
async def test_a_lock_operation_that_does_not_fit_is_refused(
    api: Api, state: str, operation: str, lock: str, status: int, text: str
) -> None:
    if state != "absent":
        query = "?lock-acquire" if state == "locked" else ""
        assert (await api.put(f"{PATH}{query}", {"Items": {"a": "b"}})).status == 200

    answer = await api.put(f"{PATH}?{operation}", {"Lock": {"ID": lock}, "Items": {"a": "c"}})

    assert (answer.status, answer.text if text else "") == (status, text)
    if status == 409:  # the variable as it is, without the lock's id, which is the holder's secret
        assert answer.json["Items"] == {"a": "b"} and answer.json.get("Lock", {}).get("ID", "") == ""


async def test_a_blocking_read_wakes_for_its_variable_alone(api: Api) -> None:
    first = await put(api)
    index = first.json["ModifyIndex"]
    waiting = asyncio.ensure_future(api.get(f"{PATH}?index={index}&wait=10s"))
    await put(api, "/v1/var/other")
    assert not waiting.done()
    changed = await put(api, user="bert")
    assert (await waiting).json == changed.json


async def test_variables_are_paged_and_belong_to_namespaces(api: Api) -> None:
    await api.put("/v1/namespace", {"Name": "ops"})
    for name in ("c", "a", "b"):
        await put(api, f"/v1/var/{name}")
    await put(api, "/v1/var/a?namespace=ops")
    page = await api.get("/v1/vars?per_page=2")
    assert [row["Path"] for row in page.json] == ["a", "b"]
    token = page.headers["X-Nomad-NextToken"]
    assert [row["Path"] for row in (await api.get(f"/v1/vars?per_page=2&next_token={token}")).json] == ["c"]
    everywhere = (await api.get("/v1/vars?namespace=*")).json
    assert [(row["Namespace"], row["Path"]) for row in everywhere] == [
        ("default", "a"), ("default", "b"), ("default", "c"), ("ops", "a"),
    ]  # fmt: skip
    assert (await api.call("DELETE", "/v1/namespace/ops")).status == 500
    found = (await api.put("/v1/search", {"Prefix": "", "Context": "vars"})).json
    assert found["Matches"]["vars"] == ["a", "b", "c"]


async def test_events_tell_metadata_and_never_items(api: Api) -> None:
    await put(api, user="geheim")
    async with api.client.get("/v1/event/stream", params={"topic": "Variable:nomad/jobs/web"}) as stream:
        await stream.content.readline()
        line = await asyncio.wait_for(stream.content.readline(), 60)
    assert b"geheim" not in line and b'"VariableUpdated"' in line and b'"Deleted":false' in line


async def test_root_keys_are_rotated_and_removed(api: Api) -> None:
    await put(api)
    (old,) = (await api.get("/v1/operator/keyring/keys")).json
    new = (await api.put("/v1/operator/keyring/rotate?full=true")).json["Key"]
    assert (new["State"], new["Algorithm"]) == ("active", "aes256-gcm")
    await api.wait_until("/v1/operator/keyring/keys", lambda rows: rows[0]["State"] == "inactive")
    assert len((await api.get("/.well-known/jwks.json")).json["keys"]) == 2
    assert (await api.call("DELETE", f"/v1/operator/keyring/key/{new['KeyID']}")).status == 500
    assert (await api.call("DELETE", f"/v1/operator/keyring/key/{old['KeyID']}?force=x")).status == 422
    assert (await api.call("DELETE", f"/v1/operator/keyring/key/{old['KeyID']}")).status == 200
    assert (await api.get(PATH)).json["Items"] == {"user": "anna"}
