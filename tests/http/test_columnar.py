"""Lists as columns and the overview over a real server: what a caller sees, counts and pages, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from yurt.access import Capability
from yurt.readmodels.job_facts import job_facts
from yurt.readmodels.node_facts import node_facts
from yurt.structs.commands import AllocUpdate, UpdateAllocsFromClient
from yurt.structs.status import ClientStatus
from yurt.testing.authorities import Grants
from yurt.testing.fakes import eventually
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, serving

ATTACK = "<script>alert(1)</script>"
OWN, OTHER = "own", "other"


async def columns(api: Api, path: str) -> dict[str, list[Any]]:
    answer = await api.get(path)
    assert answer.status == 200, answer.text
    assert answer.headers["X-Nomad-Index"] == str(answer.json["Index"])
    found: dict[str, list[Any]] = answer.json["Columns"]
    return found


async def set_client_status(api: Api, status: ClientStatus) -> None:
    """The node reports a status for all its allocations."""
    updates = tuple(
        AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status)
        for alloc in api.server.state.allocs.values()
    )
    await api.server.replica.propose(UpdateAllocsFromClient(updates=updates, now=api.server.replica.env.now()))


async def test_jobs_have_their_truthful_status(api_with_node: Api) -> None:
    api = api_with_node
    await api.register("web")
    await api.register("big", Type="service", TaskGroups=[{**job_document()["TaskGroups"][0], "Count": 2, "Tasks": [
        {"Name": "main", "Driver": "mock_driver", "Resources": {"CPU": 90_000, "MemoryMB": 10}}]}])  # fmt: skip
    await api.wait_until("/v1/allocations", lambda rows: len(rows) == 1)
    await set_client_status(api, "running")
    expected = "/v1/yurt/jobs?fields=ID,Status,Reason,Desired,Running,Waiting,WaitingReasons&sort=ID"
    await api.wait_until(expected, lambda found: found["Columns"]["Status"] == ["waiting", "running"])
    found = await columns(api, expected)
    assert (found["ID"], found["Desired"], found["Running"], found["Waiting"]) == (
        ["big", "web"],
        [2, 1],
        [0, 1],
        [2, 0],
    )
    assert found["Reason"][0].startswith("0 of 2 run, 2 wait for capacity: blocked by not enough cpu")
    await set_client_status(api, "failed")
    status = "/v1/yurt/jobs?fields=ID,Status,Failed&where=Status:failing&where=Status:failed&where=Status:starting"
    await api.wait_until(status, lambda found: found["Columns"]["ID"] == ["web"])


async def test_the_rows_that_are_kept_are_those_that_the_state_gives(api_with_node: Api) -> None:
    api = api_with_node
    await columns(api, "/v1/yurt/jobs")
    for number in range(5):
        await api.register(f"job-{number}", Type="service")
    await api.wait_until("/v1/allocations", lambda rows: len(rows) == 5)
    await set_client_status(api, "running")
    await api.call("DELETE", "/v1/job/job-1?purge=true")
    await api.call("DELETE", "/v1/job/job-2")
    await api.put(f"/v1/node/{NODE_ID}/eligibility", {"Eligibility": "ineligible"})
    await columns(api, "/v1/yurt/jobs")
    models = api.server.read_models
    state = await models.refreshed()
    assert models.jobs == {key: job_facts(state, job) for key, job in state.jobs.items()}
    assert models.nodes == {key: node_facts(state, node) for key, node in state.nodes.items()}
    assert models.nodes[NODE_ID].status == "ineligible"
    models.reset()
    assert not models.jobs and len((await columns(api, "/v1/yurt/jobs?fields=ID"))["ID"]) == len(state.jobs)


async def test_pages_facets_and_counts(api: Api) -> None:
    for number in range(7):
        await api.register(
            f"job-{number}", Type="service" if number % 2 else "batch", Meta={"owner": f"team-{number % 3}"}
        )
    first = (await api.get("/v1/yurt/jobs?fields=ID&per_page=3&facets=Type&sort=-ID")).json
    assert (first["Total"], first["Columns"]["ID"]) == (7, ["job-6", "job-5", "job-4"])
    assert first["Facets"] == {"Type": {"Values": [["batch", 4], ["service", 3]], "Omitted": 0}}
    answer = await api.get(f"/v1/yurt/jobs?fields=ID&per_page=3&sort=-ID&next_token={first['NextToken']}")
    assert answer.json["Columns"]["ID"] == ["job-3", "job-2", "job-1"]
    assert answer.headers["X-Nomad-NextToken"] == answer.json["NextToken"]
    found = (
        await api.get("/v1/yurt/jobs?fields=ID,Meta.owner&where=Meta.owner:team-1&search=JOB&filter=Type==batch")
    ).json
    assert found["Columns"] == {"ID": ["job-4"], "Meta.owner": ["team-1"]} and "NextToken" not in found


async def test_children_are_found_below_their_parent(api: Api) -> None:
    await api.register("parent", ParameterizedJob={})
    for _ in range(2):
        await api.put("/v1/job/parent/dispatch", {})
    await api.register("other")
    await eventually(lambda: all(each.status != "pending" for each in api.server.state.evals.values()))
    children = await columns(api, "/v1/yurt/jobs?fields=ID,ParentID,Kind&parent=parent")
    assert children["ParentID"] == ["parent", "parent"] and children["Kind"] == ["", ""]
    top = await columns(api, "/v1/yurt/jobs?fields=ID,Kind,Status,ChildrenPending&parent=")
    assert (top["ID"], top["Kind"], top["Status"]) == (
        ["other", "parent"],
        ["", "parameterized"],
        ["waiting", "scheduled"],
    )
    assert top["ChildrenPending"] == [0, 2]


async def test_allocations_and_nodes(api_with_node: Api) -> None:
    api = api_with_node
    await api.register("web")
    await api.register("db")
    await api.wait_until("/v1/allocations", lambda rows: len(rows) == 2)
    found = await columns(api, "/v1/yurt/allocations?fields=JobID,NodeName,Status,CPU,MemoryMB&job=web")
    assert found == {"JobID": ["web"], "NodeName": ["worker"], "Status": ["starting"], "CPU": [100], "MemoryMB": [300]}
    assert len((await columns(api, f"/v1/yurt/allocations?fields=ID&node={NODE_ID}"))["ID"]) == 2
    nodes = await columns(api, "/v1/yurt/nodes?fields=Name,Status,Allocations,CPU,CPUUsed,MemoryUsedMB,CardList")
    assert nodes == {
        "ID": [NODE_ID], "Name": ["worker"], "Status": ["ready"], "Allocations": [2], "CPU": [4000], "CPUUsed": [200],
        "MemoryUsedMB": [600], "CardList": [[]],
    }  # fmt: skip
    told = (await api.get("/v1/yurt/overview?namespace=*")).json
    assert told["Nodes"] == {"Total": 1, "Statuses": {"ready": 1}} and told["Jobs"]["Total"] == 2
    assert told["Pools"][0]["CPUUsed"] == 200 and told["Allocations"]["Starting"] == 2 and told["Attention"] == []
    assert {each["ID"] for each in told["Recent"]} == {"web", "db"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("jobs?fields=Nope", 'no field "Nope"'), ("jobs?where=x", "is not Field:value"),
        ("allocations?sort=a,b,c,d", "sort names 4 fields"), ("nodes?per_page=10001", "the largest page"),
        ("jobs?next_token=x", "next_token is not one"), ("jobs?filter=Running+%3E+1", "failed to read filter"),
        (f"jobs?fields={ATTACK}", "no field"),
    ],
)  # fmt: skip
async def test_a_bad_request_is_refused_in_plain_text(api: Api, path: str, text: str) -> None:
    answer = await api.get(f"/v1/yurt/{path}")
    assert answer.status == 400 and text in answer.text
    assert (
        answer.headers["Content-Type"].startswith("text/plain")
        and answer.headers["X-Content-Type-Options"] == "nosniff"
    )


# What is not the caller's.


@pytest.fixture
async def granted() -> AsyncIterator[tuple[Api, Grants]]:
    grants = Grants(OWN, Capability.READ_JOB, Capability.LIST_JOBS)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace in (OWN, OTHER):
            await api.put("/v1/namespace", {"Name": namespace})
            await api.put("/v1/jobs", {"Job": job_document("web", Namespace=namespace)})
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        grants.is_on = True
        yield api, grants


@pytest.mark.parametrize("kind", ["jobs", "allocations"])
async def test_another_namespace_is_in_no_row_and_no_count(granted: tuple[Api, Grants], kind: str) -> None:
    api, _ = granted
    found = (await api.get(f"/v1/yurt/{kind}?namespace=*&fields=Namespace&facets=Namespace&per_page=1")).json
    assert (found["Columns"], found["Total"]) == ({"Namespace": [OWN]}, 1) and "NextToken" not in found
    assert found["Facets"]["Namespace"]["Values"] == [[OWN, 1]]
    assert (await api.get(f"/v1/yurt/{kind}?namespace={OTHER}")).status == 403


async def test_the_overview_leaves_out_what_is_not_the_callers(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    assert (await api.get("/v1/yurt/nodes")).status == 403
    told = (await api.get("/v1/yurt/overview?namespace=*")).json
    assert told["Jobs"]["Namespaces"] == {OWN: 1} and told["Nodes"] is None and told["Pools"] is None
    assert (await api.get(f"/v1/yurt/overview?namespace={OTHER}")).json["Jobs"] is None
    by_node = (await api.get(f"/v1/yurt/allocations?namespace=*&node={NODE_ID}&fields=Namespace")).json
    assert by_node["Columns"]["Namespace"] == [OWN]


async def test_hostile_names_come_as_data(api: Api) -> None:
    await api.register("evil", Name=ATTACK, Meta={ATTACK: ATTACK})
    answer = await api.get("/v1/yurt/jobs?fields=Name&search=%3Cscript")
    assert answer.json["Columns"]["Name"] == [ATTACK] and answer.headers["Content-Type"].startswith("application/json")
    assert "sandbox" in answer.headers["Content-Security-Policy"]
