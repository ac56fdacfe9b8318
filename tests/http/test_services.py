"""Services over HTTP: lists, instances, choices and deletions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.structs.service import ServiceRegistration
from yurt.testing import factories
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, add_ready_node


@pytest.fixture
async def alloc_id(api: Api) -> str:
    """A running allocation of the job `web` with two services."""
    await add_ready_node(api)
    await api.register()
    (stub,) = await api.wait_until("/v1/job/web/allocations", len)
    alloc = api.server.state.allocs[stub["ID"]]
    services = (factories.service(alloc, "api"), factories.service(alloc, "db", tags=("green",)))
    await api.server.clients.calls.register_services(NODE_ID, services)
    return str(stub["ID"])


async def test_services_are_listed_by_namespace_with_their_tags(api: Api, alloc_id: str) -> None:
    answer = await api.get("/v1/services?namespace=*")
    assert answer.json == [
        {
            "Namespace": "default",
            "Services": [{"ServiceName": "api", "Tags": ["blue"]}, {"ServiceName": "db", "Tags": ["green"]}],
        }
    ]
    assert answer.index == api.server.state.services.index


async def test_a_service_tells_its_instances(api: Api, alloc_id: str) -> None:
    (found,) = (await api.get("/v1/service/api")).json
    assert (found["ServiceName"], found["AllocID"], found["Address"], found["Port"], found["JobID"]) == (
        "api", alloc_id, "127.0.0.1", 8080, "web",
    )  # fmt: skip
    assert (await api.get("/v1/service/unknown")).json == []


@pytest.mark.parametrize("path", ["/v1/job/web/services", "/v1/allocation/{}/services"])
async def test_a_job_and_an_allocation_tell_their_services(api: Api, alloc_id: str, path: str) -> None:
    names = [service["ServiceName"] for service in (await api.get(path.format(alloc_id))).json]
    assert names == ["api", "db"]


async def test_services_of_what_is_not_there_are_not_found(api: Api) -> None:
    job = await api.get("/v1/job/none/services")
    alloc = await api.get(f"/v1/allocation/{UNKNOWN_ID}/services")
    assert (job.status, job.text) == (404, "job not found")
    assert (alloc.status, alloc.text) == (404, "allocation not found")


async def test_a_key_chooses_the_same_instances_every_time(api: Api, alloc_id: str) -> None:
    alloc = api.server.state.allocs[alloc_id]
    more = tuple(
        factories.service(alloc, "api", id=f"_nomad-task-{alloc_id}-web-{number}", port=number)
        for number in range(1, 9)
    )
    await api.server.clients.calls.register_services(NODE_ID, more)

    async def chosen(query: str) -> list[Any]:
        return [service["ID"] for service in (await api.get(f"/v1/service/api?choose={query}")).json]

    assert len(await chosen("3|me")) == 3
    assert await chosen("3|me") == await chosen("3|me")
    assert len({(await chosen(f"1|{key}"))[0] for key in range(40)}) > 3
    assert len(await chosen("99|me")) == 9


@pytest.mark.parametrize("query", ["x", "1", "|me", "x|me", "0|me", "1|"])
async def test_a_choice_has_a_form(api: Api, query: str) -> None:
    answer = await api.get(f"/v1/service/api?choose={query}")
    assert (answer.status, answer.text) == (400, "Parameter for choose must be in form '<number>|<key>'")


async def test_an_instance_can_be_deleted_once(api: Api, alloc_id: str) -> None:
    service_id = f"_nomad-task-{alloc_id}-group-api"
    other = await api.call("DELETE", f"/v1/service/db/{service_id}")
    assert other.status == 404
    assert (await api.call("DELETE", f"/v1/service/api/{service_id}")).status == 200
    again = await api.call("DELETE", f"/v1/service/api/{service_id}")
    assert (again.status, again.text) == (404, "service registration not found")


async def test_a_blocking_query_wakes_when_a_service_comes(api: Api, alloc_id: str) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        index = (await api.get("/v1/service/late")).index
        waiting = group.create_task(api.get(f"/v1/service/late?index={index}&wait=8s"))
        alloc = api.server.state.allocs[alloc_id]
        await api.server.clients.calls.register_services(NODE_ID, (factories.service(alloc, "late"),))
    assert [service["ServiceName"] for service in waiting.result().json] == ["late"]


async def test_a_node_registers_only_what_it_runs(api: Api, alloc_id: str) -> None:
    service = ServiceRegistration(id="x", service_name="x", node_id=UNKNOWN_ID, alloc_id=alloc_id)
    with pytest.raises(Exception, match="does not belong to node"):
        await api.server.clients.calls.register_services(NODE_ID, (service,))
    with pytest.raises(Exception, match="node not found"):
        await api.server.clients.calls.register_services(UNKNOWN_ID, (service,))
