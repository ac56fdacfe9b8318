"""Registering, reading and acting on jobs."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from yurt.testing.http_api import Api, job_document


async def test_a_registered_job_can_be_read_back(api: Api) -> None:
    answer = await api.register(Meta={"owner": "me"})
    assert answer.status == 200, answer.text
    job = (await api.get("/v1/job/web")).json
    assert (job["ID"], job["Meta"], job["Version"]) == ("web", {"owner": "me"}, 0)
    assert answer.json["JobModifyIndex"] == job["JobModifyIndex"] == answer.index


async def test_keys_match_whatever_their_case_and_unknown_ones_are_warned_of(api: Api) -> None:
    document = {key.lower(): value for key, value in job_document().items()} | {"Prioritty": 3}
    answer = await api.put("/v1/jobs", {"job": document})
    assert answer.status == 200, answer.text
    assert 'unknown key "Job.Prioritty" is ignored; did you mean "Priority"?' in answer.json["Warnings"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "Request body is empty"),
        (b"{}", 400, "Job must be specified"),
        (b'{"Job":null}', 400, "Job must be specified"),
        (b'{"Job":{}}', 400, "Job ID hasn't been provided"),
        (b'{"Job":{"ID":"a","Priority":"high"}}', 400, "Job.Priority: expected integer, got string"),
        (b'{"Job":', 400, "Failed to decode body"),
        (b"\xff\xfe", 400, "Failed to decode body"),
        (b"[" * 200, 400, "Failed to decode body"),
        (b'{"Job":{"ID":"a","TaskGroups":[{"Count":1' + b"0" * 30 + b"}]}}", 400, "does not fit 64 bits"),
    ],
)
async def test_a_bad_body_is_refused_with_what_is_wrong(api: Api, body: bytes, status: int, text: str) -> None:
    answer = await api.put("/v1/jobs", body)
    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_a_body_beyond_the_limit_is_413(api: Api) -> None:
    answer = await api.put("/v1/jobs", b'{"Job":"' + b"x" * (10 << 20) + b'"}')
    assert answer.status == 413
    assert "too large" in answer.text


async def test_a_deeply_nested_config_is_refused(api: Api) -> None:
    nested = b'{"a":' * 200 + b"1" + b"}" * 200
    answer = await api.put("/v1/jobs", b'{"Job":{"ID":"a","TaskGroups":[{"Tasks":[{"Config":' + nested + b"}]}]}}")
    assert (answer.status, "nested deeper than 64 levels" in answer.text) == (400, True)


async def test_an_invalid_job_is_500_with_all_problems(api: Api) -> None:
    answer = await api.register(TaskGroups=[])
    assert answer.status == 500
    assert answer.text == "1 error occurred:\n\t* Missing job task groups\n\n"


async def test_the_id_in_the_path_must_be_the_jobs(api: Api) -> None:
    answer = await api.put("/v1/job/other", {"Job": job_document()})
    assert (answer.status, answer.text) == (400, "Job ID does not match name")


async def test_an_enforced_index_must_match(api: Api) -> None:
    index = (await api.register()).json["JobModifyIndex"]
    body = {"Job": job_document(), "EnforceIndex": True, "JobModifyIndex": 0}
    refused = await api.put("/v1/jobs", body)
    assert (refused.status, refused.text) == (500, "Enforcing job modify index 0: job already exists")
    assert (await api.put("/v1/jobs", body | {"JobModifyIndex": index})).status == 200


async def test_jobs_are_listed_by_namespace_prefix_and_filter(api: Api) -> None:
    await api.put("/v1/namespace", {"Name": "dev"})
    await api.register("web-1")
    await api.register("db-1")
    await api.register("web-2", Namespace="dev")

    async def ids(query: str) -> list[str]:
        return [row["ID"] for row in (await api.get(f"/v1/jobs?{query}")).json]

    assert await ids("") == ["db-1", "web-1"]
    assert await ids("prefix=web") == ["web-1"]
    assert await ids("namespace=*&prefix=web") == ["web-1", "web-2"]
    assert await ids("namespace=*&reverse=true") == ["web-2", "web-1", "db-1"]
    assert await ids('filter=Name+matches+"^db"') == ["db-1"]


async def test_a_bad_filter_is_400(api: Api) -> None:
    await api.register()
    for expression in ("Name+==", "Nonsense+==+1", "((("):
        assert (await api.get(f"/v1/jobs?filter={expression}")).status == 400


async def test_pages_give_every_job_once(api: Api) -> None:
    for number in range(5):
        await api.register(f"job-{number}")
    found: list[str] = []
    token = ""
    for _ in range(3):
        answer = await api.get(f"/v1/jobs?per_page=2&next_token={token}")
        found += [row["ID"] for row in answer.json]
        token = answer.headers.get("X-Nomad-NextToken", "")
    assert (found, token) == ([f"job-{number}" for number in range(5)], "")


async def test_a_blocking_query_returns_when_the_job_changes(api: Api) -> None:
    index = (await api.register()).json["JobModifyIndex"]
    index = (await api.get("/v1/job/web")).index
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(api.get(f"/v1/job/web?index={index}&wait=30s"))
        await asyncio.sleep(0)
        await api.register(Meta={"a": "b"})
    assert waiting.result().index > index


async def test_a_blocking_query_answers_with_the_present_state_when_its_time_is_over(api: Api) -> None:
    await api.register()
    index = (await api.get("/v1/jobs")).index
    answer = await api.get(f"/v1/jobs?index={index + 1000}&wait=20ms")
    assert (answer.status, answer.json[0]["ID"]) == (200, "web")


async def test_deleting_stops_and_purging_removes(api: Api) -> None:
    await api.register()
    stopped = await api.call("DELETE", "/v1/job/web")
    assert (stopped.status, bool(stopped.json["EvalID"])) == (200, True)
    assert (await api.get("/v1/job/web")).json["Stop"] is True
    await api.call("DELETE", "/v1/job/web?purge=true")
    assert (await api.get("/v1/job/web")).status == 404


async def test_deleting_an_unknown_job_still_makes_an_evaluation(api: Api) -> None:
    answer = await api.call("DELETE", "/v1/job/nope")
    assert (answer.status, bool(answer.json["EvalID"])) == (200, True)
    assert (await api.call("DELETE", "/v1/job/nope?purge=maybe")).status == 500


async def test_versions_come_newest_first_with_differences(api: Api) -> None:
    await api.register(Priority=50)
    await api.register(Priority=60)
    answer = (await api.get("/v1/job/web/versions?diffs=true")).json
    assert [job["Version"] for job in answer["Versions"]] == [1, 0]
    (diff,) = answer["Diffs"]
    assert diff["Type"] == "Edited"
    assert {"Name": "Priority", "Old": "50", "New": "60"}.items() <= diff["Fields"][0].items()
    assert (await api.get("/v1/job/nope/versions")).text == "job versions not found"


async def test_a_job_can_be_reverted(api: Api) -> None:
    await api.register(Priority=50)
    await api.register(Priority=60)
    assert (await api.put("/v1/job/web/revert", {})).text == "JobID must be specified"
    current = await api.put("/v1/job/web/revert", {"JobID": "web", "JobVersion": 1})
    assert (current.status, current.text) == (500, "can't revert to current version")
    assert (await api.put("/v1/job/web/revert", {"JobID": "web", "JobVersion": 0})).status == 200
    assert (await api.get("/v1/job/web")).json["Priority"] == 50


async def test_a_version_can_be_marked_stable(api: Api) -> None:
    await api.register()
    answer = await api.put("/v1/job/web/stable", {"JobID": "web", "JobVersion": 0, "Stable": True})
    assert answer.status == 200, answer.text
    assert (await api.get("/v1/job/web")).json["Stable"] is True


async def test_a_plan_changes_nothing_and_tells_what_it_would_do(api_with_node: Api) -> None:
    api = api_with_node
    answer = await api.put("/v1/job/web/plan", {"Job": job_document(), "Diff": True})
    assert answer.status == 200, answer.text
    assert answer.json["Diff"]["Type"] == "Added"
    assert answer.json["Annotations"]["DesiredTGUpdates"]["group"]["Place"] == 1
    assert (await api.get("/v1/job/web")).status == 404
    assert (await api.put("/v1/job/web/plan", {"Job": job_document("x")})).text == "Job ID does not match"


@pytest.mark.parametrize(
    "kind", [{"Periodic": {"Enabled": True, "Spec": "0 0 1 1 *", "SpecType": "cron"}}, {"ParameterizedJob": {}}]
)
async def test_the_plan_of_a_job_that_launches_others_tells_whether_an_instance_would_be_placed(
    api_with_node: Api, kind: dict[str, Any]
) -> None:
    fits = job_document(**kind)
    answer = (await api_with_node.put("/v1/job/web/plan", {"Job": fits, "Diff": True})).json
    assert (answer["Annotations"], answer["FailedTGAllocs"], answer["CreatedEvals"]) == (None, None, None)
    large = copy.deepcopy(fits)
    large["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": 100_000}
    answer = (await api_with_node.put("/v1/job/web/plan", {"Job": large})).json
    assert answer["FailedTGAllocs"]["group"]["DimensionExhausted"] == {"memory": 1}
    assert (answer["Annotations"], answer["CreatedEvals"]) == (None, None)
    assert (await api_with_node.get("/v1/job/web")).status == 404


async def test_an_unknown_driver_option_is_named_by_validation(api: Api) -> None:
    answer = await api.put("/v1/validate/job", {"Job": job_document(TaskGroups=[])})
    assert answer.status == 200
    assert answer.json["ValidationErrors"] == ["Missing job task groups"]
    assert (await api.put("/v1/validate/job", {})).text == "Job must be specified"


async def test_a_dispatched_job_has_a_slash_in_its_id(api: Api) -> None:
    await api.register("batch", ParameterizedJob={"Payload": "optional", "MetaRequired": ["who"]})
    refused = await api.put("/v1/job/batch/dispatch", {"Meta": {}})
    assert refused.status == 500
    answer = await api.put("/v1/job/batch/dispatch", {"Meta": {"who": "me"}, "Payload": "aGk="})
    child = answer.json["DispatchedJobID"]
    assert child.startswith("batch/dispatch-")
    for path in (f"/v1/job/{child}", "/v1/job/" + child.replace("/", "%2F")):
        job = (await api.get(path)).json
        assert (job["ParentID"], job["Payload"], job["Dispatched"]) == ("batch", "aGk=", True)
    assert (await api.get(f"/v1/job/{child}/summary")).json["JobID"] == child


CHILDS_FIELDS = {"ParentID": "cron", "Dispatched": True, "DispatchIdempotencyToken": "once"}


async def test_a_registration_makes_no_child_of_another_job(api: Api) -> None:
    await api.register("web", **CHILDS_FIELDS)
    job = (await api.get("/v1/job/web")).json
    assert {name: job[name] for name in CHILDS_FIELDS} == {
        "ParentID": "", "Dispatched": False, "DispatchIdempotencyToken": "",
    }  # fmt: skip
    refused = await api.put("/v1/jobs", {"Job": job_document("web", Payload="aGk=")})
    assert (refused.status, refused.text) == (500, "job can't be submitted with a payload, only dispatched")


async def test_a_child_that_is_registered_again_stays_a_child(api: Api) -> None:
    await api.register("batch", Type="batch", ParameterizedJob={"Payload": "optional"})
    child = (await api.put("/v1/job/batch/dispatch", {"Payload": "aGk="})).json["DispatchedJobID"]
    document = (await api.get(f"/v1/job/{child}")).json
    dropped = {**document, "ParentID": "", "Dispatched": False, "Payload": "", "Priority": 70}
    for sent in (document, dropped):
        assert (await api.put("/v1/jobs", {"Job": sent})).status == 200
        job = (await api.get(f"/v1/job/{child}")).json
        assert (job["ParentID"], job["Payload"], job["Dispatched"]) == ("batch", "aGk=", True)
    assert job["Priority"] == 70


async def test_a_periodic_job_can_be_forced(api: Api) -> None:
    await api.register("cron", Periodic={"Enabled": True, "Spec": "0 0 1 1 *", "SpecType": "cron"})
    answer = await api.put("/v1/job/cron/periodic/force")
    assert (answer.status, bool(answer.json["EvalID"])) == (200, True), answer.text
    await api.register()
    assert (await api.put("/v1/job/web/periodic/force")).text == "can't force launch non-periodic job"
    assert (await api.put("/v1/job/nope/periodic/force")).text == "job not found"


async def test_evaluating_needs_no_body(api: Api) -> None:
    await api.register()
    assert (await api.put("/v1/job/web/evaluate")).status == 200
    assert (await api.put("/v1/job/web/evaluate", {"JobID": "x"})).text == "JobID not same as job name"
    missing = await api.put("/v1/job/nope/evaluate")
    assert (missing.status, missing.text) == (500, "job not found")


async def test_a_group_can_be_scaled(api: Api) -> None:
    await api.register()
    target = {"Namespace": "default", "Job": "web", "Group": "group"}
    assert (await api.put("/v1/job/web/scale", {"Count": 3, "Target": target})).status == 200
    assert (await api.get("/v1/job/web/scale")).json["TaskGroups"]["group"]["Desired"] == 3
    wrong = await api.put("/v1/job/web/scale", {"Count": 3, "Target": target | {"Job": "x"}})
    assert (wrong.status, wrong.text) == (400, "job ID in payload did not match URL")
    assert (await api.get("/v1/job/nope/scale")).status == 404


async def test_the_submitted_text_is_kept(api: Api) -> None:
    submission = {"Source": 'job "web" {}', "Format": "hcl2"}
    await api.put("/v1/jobs", {"Job": job_document(), "Submission": submission})
    assert (await api.get("/v1/job/web/submission?version=0")).json["Source"] == 'job "web" {}'
    assert (await api.get("/v1/job/web/submission")).text == "Unable to parse job submission version parameter"
    assert (await api.get("/v1/job/web/submission?version=7")).text == "job source not found"


async def test_a_placed_job_shows_in_allocations_evaluations_and_statuses(api_with_node: Api) -> None:
    api = api_with_node
    await api.register()
    (stub,) = await api.wait_until("/v1/job/web/allocations", len)
    alloc = (await api.get(f"/v1/allocation/{stub['ID']}")).json
    assert (alloc["Job"]["ID"], alloc["NodeName"], alloc["Namespace"]) == ("web", "worker", "default")
    (evaluation,) = (await api.get("/v1/job/web/evaluations")).json
    assert (await api.get(f"/v1/evaluation/{evaluation['ID']}/allocations")).json[0]["ID"] == stub["ID"]
    assert (await api.get(f"/v1/evaluation/{evaluation['ID']}?related=true")).json["ID"] == evaluation["ID"]
    (row,) = (await api.call("POST", "/v1/jobs/statuses", {"Jobs": [{"ID": "web", "Namespace": "default"}]})).json
    assert [found["ID"] for found in row["Allocs"]] == [stub["ID"]]
    assert (await api.call("POST", "/v1/jobs/statuses", {"Jobs": []})).text == "no jobs in request"


async def test_a_job_file_is_parsed(api: Api) -> None:
    source = 'job "x" {\n  group "g" {\n    task "t" {\n      driver = "raw_exec"\n    }\n  }\n}\n'
    answer = await api.put("/v1/jobs/parse", {"JobHCL": source})
    assert (answer.status, answer.json["TaskGroups"][0]["Tasks"][0]["Driver"]) == (200, "raw_exec"), answer.text
    assert {"Affinities", "VersionTag", "NomadTokenID"} <= answer.json.keys()
    assert answer.json["TaskGroups"][0]["Tasks"][0]["Vault"] is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"JobHCL": ""}, "Job spec is empty"),
        ({}, "Job spec is empty"),
        ({"JobHCL": 'job "x" {'}, "Failed to parse job: "),
        ({"JobHCL": 'job "x" {\n meta { a = file("/etc/passwd") }\n}'}, "Failed to parse job: "),
    ],
)
async def test_a_bad_job_file_is_400(api: Api, body: dict[str, str], text: str) -> None:
    answer = await api.put("/v1/jobs/parse", body)
    assert (answer.status, answer.text.startswith(text)) == (400, True), answer.text
    assert "root:" not in answer.text


async def test_variables_and_defaults_are_filled_in_when_parsing(api: Api) -> None:
    source = 'variable "who" {}\njob "x" {\n  meta {\n    owner = var.who\n  }\n}\n'
    body = {"JobHCL": source, "Variables": 'who = "me"\n', "Canonicalize": True}
    answer = await api.put("/v1/jobs/parse", body)
    assert (answer.status, answer.json["Meta"], answer.json["Priority"]) == (200, {"owner": "me"}, 50), answer.text


async def test_a_job_file_that_asks_for_too_much_is_refused_and_others_are_served(api: Api) -> None:
    source = (
        'job "x" {\n  meta {\n    a = join(",", [for i in range(0, 100000) : join(",", range(0, 100000))])\n  }\n}\n'
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        parsing = group.create_task(api.put("/v1/jobs/parse", {"JobHCL": source}))
        assert (await api.get("/v1/jobs")).status == 200
        assert not parsing.done()
    answer = parsing.result()
    assert (answer.status, answer.text.startswith("Failed to parse job: ")) == (400, True)
