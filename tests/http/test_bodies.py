"""What a body says is done: no field is read and forgotten."""

from __future__ import annotations

from typing import Any

from yurt.testing.access import bootstrapped
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, serving


async def test_a_job_without_a_priority_gets_the_servers_default() -> None:
    async with serving(job_default_priority=33) as api:
        await api.register("none")
        await api.register("null", Priority=None)
        await api.register("own", priority=50)

        found = {job["ID"]: job["Priority"] for job in (await api.get("/v1/jobs")).json}

    assert found == {"none": 33, "null": 33, "own": 50}


async def test_a_registration_can_keep_the_running_jobs_resources(api: Api) -> None:
    def with_cpu(cpu: int) -> dict[str, Any]:
        document = job_document()
        document["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": cpu, "MemoryMB": 64}
        return document

    await api.put("/v1/jobs", {"Job": with_cpu(500)})
    await api.put("/v1/jobs", {"Job": with_cpu(100) | {"Priority": 60}, "PreserveResources": True})
    kept = (await api.get("/v1/job/web")).json
    await api.put("/v1/jobs", {"Job": with_cpu(100)})
    taken = (await api.get("/v1/job/web")).json

    assert (kept["Priority"], kept["TaskGroups"][0]["Tasks"][0]["Resources"]["CPU"]) == (60, 500)
    assert taken["TaskGroups"][0]["Tasks"][0]["Resources"]["CPU"] == 100


async def test_a_dispatched_child_has_the_priority_of_the_body(api: Api) -> None:
    await api.register(ParameterizedJob={})

    answer = await api.put("/v1/job/web/dispatch", {"Priority": 80})
    refused = await api.put("/v1/job/web/dispatch", {"Priority": 101})

    child = (await api.get(f"/v1/job/{answer.json['DispatchedJobID']}")).json
    assert (child["Priority"], (await api.get("/v1/job/web")).json["Priority"]) == (80, 50)
    assert (refused.status, refused.text) == (500, "Job priority must be between [1, 100]")


async def test_scaling_enforces_the_index_that_it_is_given(api: Api) -> None:
    await api.register()
    index = (await api.get("/v1/job/web")).json["JobModifyIndex"]
    body = {"Count": 2, "Target": {"Job": "web", "Group": "group"}, "JobModifyIndex": index + 1000}

    refused = await api.put("/v1/job/web/scale", body)
    done = await api.put("/v1/job/web/scale", body | {"JobModifyIndex": index, "Meta": {"by": "me"}})

    assert "conflicting job modify index" in refused.text
    (event,) = (await api.get("/v1/job/web/scale")).json["TaskGroups"]["group"]["Events"]
    assert (done.status, event["Count"], event["PreviousCount"], event["Meta"]) == (200, 2, 1, {"by": "me"})


async def test_a_drain_keeps_its_meta(api_with_node: Api) -> None:
    body = {"DrainSpec": {"Deadline": 3600 * 10**9}, "Meta": {"message": "new disks"}}

    await api_with_node.put(f"/v1/node/{NODE_ID}/drain", body)

    assert (await api_with_node.get(f"/v1/node/{NODE_ID}")).json["LastDrain"]["Meta"] == {"message": "new disks"}


async def test_a_job_file_of_the_first_version_is_refused(api: Api) -> None:
    answer = await api.put("/v1/jobs/parse", {"JobHCL": 'job "x" {}', "hclv1": True})

    assert (answer.status, answer.text[:36]) == (400, "Job files of HCL version 1 are not r")


async def test_a_drain_records_the_token_that_set_it_last() -> None:
    async with bootstrapped() as callers:
        await add_ready_node(callers.api)
        await callers.policy("drainers", 'node { policy = "write" }')
        drainer = await callers.token("drainers")
        found = []
        for token in (drainer["SecretID"], None):
            body = {"NodeID": NODE_ID, "DrainSpec": {"Deadline": -1}}
            await callers.put(f"/v1/node/{NODE_ID}/drain", body, token=token)
            found.append((await callers.get(f"/v1/node/{NODE_ID}")).json["LastDrain"]["AccessorID"])
    assert found == [drainer["AccessorID"], callers.root["AccessorID"]]
