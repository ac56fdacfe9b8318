"""Tags of versions, scaling events, deleted evaluations, stubs of dispatched children, small operator routes."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.testing.http_api import UNKNOWN_ID, Api

NOTHING = [{"Name": "g", "Count": 0, "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]
BOTH = {"EvalIDs": [UNKNOWN_ID], "Filter": "x"}


async def test_a_version_can_be_tagged_compared_with_and_untagged(api: Api) -> None:
    await api.register()
    await api.register(Priority=60)
    path = "/v1/job/web/versions/golden/tag"
    answer = await api.put(path, {"Version": 0, "Description": "it worked"})
    assert (answer.status, answer.json["Name"], answer.json["Description"]) == (200, "golden", "it worked")
    versions = (await api.get("/v1/job/web/versions?diffs=true&diff_tag=golden")).json
    tags = [(version["VersionTag"] or {}).get("Name") for version in versions["Versions"]]
    assert tags == [None, "golden"]
    (diff,) = versions["Diffs"]
    assert [field["Name"] for field in diff["Fields"]] == ["Priority"]
    assert (await api.call("DELETE", path)).status == 200
    assert (await api.call("DELETE", path)).status == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/job/none/versions/a/tag", {}, 404),
        ("/v1/job/web/versions/a/tag", {"Version": 77}, 404),
        ("/v1/job/web/versions/a/tag", {"Description": "x" * 1001}, 400),
        (f"/v1/job/web/versions/{'x' * 129}/tag", {}, 400),
    ],
)
async def test_tags_that_cannot_be(api: Api, path: str, body: Any, status: int) -> None:
    await api.register()
    assert (await api.put(path, body)).status == status


async def test_a_tag_names_one_version_only(api: Api) -> None:
    await api.register()
    await api.put("/v1/job/web/versions/a/tag", {"Latest": True})
    await api.register(Priority=60)
    answer = await api.put("/v1/job/web/versions/a/tag", {"Version": 1})
    assert (answer.status, "already exists on version 0" in answer.text) == (409, True)


async def test_scaling_is_remembered(api: Api) -> None:
    await api.register()
    body = {"Target": {"Group": "group"}, "Count": 3, "Message": "busy", "Meta": {"by": "me"}}
    stored = await api.put("/v1/job/web/scale", body)
    await api.put("/v1/job/web/scale", {"Target": {"Group": "group"}, "Message": "too hot", "Error": True})
    group = (await api.get("/v1/job/web/scale")).json["TaskGroups"]["group"]
    assert group["Desired"] == 3
    failed, scaled = group["Events"]
    assert (failed["Error"], failed["Count"], failed["Message"]) == (True, None, "too hot")
    assert (scaled["Count"], scaled["PreviousCount"], scaled["Meta"]) == (3, 1, {"by": "me"})
    assert scaled["EvalID"] == stored.json["EvalID"]


async def test_scaling_can_ask_for_the_version_it_was_decided_on(api: Api) -> None:
    await api.register()
    body = {"Target": {"Group": "group"}, "Count": 3, "JobModifyIndex": 999, "EnforceIndex": True}
    assert (await api.put("/v1/job/web/scale", body)).status == 409


async def pause_broker(api: Api, *, is_paused: bool = True) -> None:
    answer = await api.put("/v1/operator/scheduler/configuration", {"PauseEvalBroker": is_paused})
    assert answer.json["Updated"]


async def test_ended_evaluations_can_be_deleted_and_others_not(api_with_node: Api) -> None:
    api = api_with_node
    await api.register()
    ended = await api.wait_until("/v1/job/web/evaluations", lambda rows: rows and rows[0]["Status"] == "complete")
    await pause_broker(api)
    held = await api.call("DELETE", "/v1/evaluations", {"EvalIDs": [ended[0]["ID"]]})
    assert (held.status, "is not safe to delete: its allocation" in held.text) == (400, True)
    await pause_broker(api, is_paused=False)
    await api.register("empty", TaskGroups=NOTHING)
    path = "/v1/job/empty/evaluations"
    (row,) = await api.wait_until(path, lambda rows: rows and rows[0]["Status"] == "complete")
    await pause_broker(api)
    answer = await api.call("DELETE", "/v1/evaluations", {"EvalIDs": [row["ID"]]})
    assert (answer.status, answer.json) == (200, {"Count": 1})
    assert (await api.get(f"/v1/evaluation/{row['ID']}")).status == 404


@pytest.mark.parametrize("body", [{"EvalIDs": [UNKNOWN_ID]}, {"Filter": 'JobID == "empty"'}, {"Filter": "ID == x"}])
async def test_no_evaluation_is_deleted_while_the_broker_is_enabled(api: Api, body: Any) -> None:
    await api.register("empty", TaskGroups=NOTHING)
    (row,) = await api.wait_until("/v1/evaluations", lambda rows: rows and rows[0]["Status"] == "complete")
    answer = await api.call("DELETE", "/v1/evaluations", body)
    assert (answer.status, answer.headers["X-Yurt-Error"]) == (500, "eval-broker-enabled")
    assert answer.text == "eval broker is enabled; eval broker must be paused to delete evals"
    assert (await api.get(f"/v1/evaluation/{row['ID']}")).status == 200


async def test_one_evaluation_that_must_stay_keeps_all_that_are_named(api: Api) -> None:
    await api.register("empty", TaskGroups=NOTHING)
    (row,) = await api.wait_until("/v1/evaluations", lambda rows: rows and rows[0]["Status"] == "complete")
    await pause_broker(api)
    ids = [row["ID"], row["ID"]]
    assert (await api.call("DELETE", "/v1/evaluations", {"EvalIDs": [*ids, UNKNOWN_ID]})).status == 404
    assert (await api.get(f"/v1/evaluation/{row['ID']}")).status == 200
    assert (await api.call("DELETE", "/v1/evaluations", {"EvalIDs": ids})).json == {"Count": 1}


@pytest.mark.parametrize(("query", "body"), [("", {"Filter": 'JobID == "a"'}), ("?filter=JobID+%3D%3D+%22a%22", None)])
async def test_a_filter_deletes_what_is_safe(api: Api, query: str, body: Any) -> None:
    for name in ("a", "b"):
        await api.register(name, TaskGroups=NOTHING)
    await api.wait_until("/v1/evaluations", lambda rows: all(row["Status"] == "complete" for row in rows))
    await pause_broker(api)
    answer = await api.call("DELETE", f"/v1/evaluations{query}", body)
    assert answer.json == {"Count": 1}
    assert [row["JobID"] for row in (await api.get("/v1/evaluations")).json] == ["b"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "evals must be deleted by either ID or filter"),
        (BOTH, 400, "evals cannot be deleted by both ID and filter"),
        ({"EvalIDs": [UNKNOWN_ID]}, 404, f"eval not found: {UNKNOWN_ID}"),
        ({"EvalIDs": ["x"]}, 500, "eval lookup failed: index error: UUID must be 36 characters"),
    ],
)
async def test_deletions_that_name_nothing(api: Api, body: Any, status: int, text: str) -> None:
    await pause_broker(api)
    answer = await api.call("DELETE", "/v1/evaluations", body)
    assert (answer.status, answer.text) == (status, text)


async def test_a_dispatched_child_is_listed_as_an_ordinary_job(api: Api) -> None:
    await api.register("work", ParameterizedJob={"Payload": "optional"})
    child = (await api.put("/v1/job/work/dispatch", {})).json["DispatchedJobID"]
    kinds = {job["ID"]: job["ParameterizedJob"] for job in (await api.get("/v1/jobs")).json}
    assert kinds == {"work": True, child: False}


async def test_the_one_server_is_healthy(api: Api) -> None:
    health = (await api.get("/v1/operator/autopilot/health")).json
    assert (health["Healthy"], health["Leader"], len(health["Servers"])) == (True, "test", 1)
    assert (await api.get("/v1/operator/autopilot/configuration")).json["CleanupDeadServers"] is True


async def test_the_key_that_signs_is_told(api: Api) -> None:
    assert (await api.get("/v1/operator/keyring/keys")).json == []
    await api.put("/v1/operator/keyring/rotate")
    (key,) = (await api.get("/v1/operator/keyring/keys")).json
    jwks = (await api.get("/.well-known/jwks.json")).json
    assert (key["KeyID"], key["State"]) == (jwks["keys"][0]["kid"], "active")
    assert (key["Keyring"], key["KeyringProblem"]) == ("memory", "")
