"""A caller with rights in one namespace: what is elsewhere is neither found nor counted nor changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from yurt.access import Access, Capability, needs
from yurt.http.call import CONTEXT
from yurt.server.views import View
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.cluster import Namespace
from yurt.structs.commands import UpsertNamespaces
from yurt.testing.authorities import Grants
from yurt.testing.fakes import eventually
from yurt.testing.http_api import UNKNOWN_ID, Api, add_ready_node, job_document, serving

OWN, OTHER = "own", "other"


def job_body(namespace: str) -> dict[str, Any]:
    return {"Job": job_document("web", Namespace=namespace)}


class Ids:
    """What was made in both namespaces."""

    def __init__(self, api: Api) -> None:
        state = api.server.state
        self.evals = {row.namespace: row.id for row in state.evals.values()}
        self.allocs = {row.namespace: row.id for row in state.allocs.values()}


@pytest.fixture
async def granted() -> AsyncIterator[tuple[Api, Grants]]:
    """An API whose callers have rights in the namespace `own`, with the same job there and in `other`."""
    grants = Grants(OWN, Capability.READ_JOB, Capability.LIST_JOBS, Capability.REGISTER_JOB, Capability.DEREGISTER_JOB)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace in (OWN, OTHER):
            assert (await api.call("PUT", "/v1/namespace", {"Name": namespace})).status == 200
            answer = await api.call("PUT", "/v1/jobs", job_body(namespace))
            assert answer.status == 200, answer.text
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        grants.is_on = True
        yield api, grants


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs", "Namespace"), ("/v1/evaluations", "Namespace"), ("/v1/allocations", "Namespace"),
        ("/v1/jobs/statuses", "Namespace"), ("/v1/namespaces", "Name"),
    ],
)  # fmt: skip
async def test_a_list_of_all_namespaces_holds_what_the_caller_may_see(
    granted: tuple[Api, Grants], path: str, field: str
) -> None:
    api, _ = granted
    answer = await api.get(f"{path}?namespace=*&per_page=1")
    assert [row[field] for row in answer.json] == [OWN]
    assert "X-Nomad-NextToken" not in answer.headers


async def test_a_count_knows_nothing_of_other_namespaces(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    assert (await api.get("/v1/evaluations/count?namespace=*")).json == {"Count": 1}


@pytest.mark.parametrize("kind", ["evaluation", "allocation"])
async def test_an_object_by_id_lies_in_the_namespace_of_its_row(granted: tuple[Api, Grants], kind: str) -> None:
    api, _ = granted
    ids = Ids(api).evals if kind == "evaluation" else Ids(api).allocs
    assert (await api.get(f"/v1/{kind}/{ids[OWN]}?namespace={OTHER}")).status == 200
    assert (await api.get(f"/v1/{kind}/{ids[OTHER]}?namespace={OWN}")).status == 404


async def test_what_a_body_names_is_decided_by_the_operation(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    assert (await api.call("PUT", "/v1/jobs", job_body(OWN))).status == 200
    refused = await api.call("PUT", f"/v1/jobs?namespace={OWN}", job_body(OTHER))
    assert (refused.status, refused.text) == (403, "Permission denied")
    asked = {"Jobs": [{"Namespace": name, "ID": "web"} for name in (OWN, OTHER)]}
    found = await api.call("POST", "/v1/jobs/statuses", asked)
    assert [row["Namespace"] for row in found.json] == [OWN]


async def test_a_row_elsewhere_is_not_changed(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.capabilities |= {Capability.ALLOC_LIFECYCLE}
    answer = await api.call("PUT", f"/v1/allocation/{Ids(api).allocs[OTHER]}/stop?namespace={OWN}")
    assert (answer.status, answer.text) == (404, "allocation not found")


async def test_to_purge_a_job_needs_more_than_to_stop_it(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    path = f"/v1/job/web?namespace={OWN}"
    assert (await api.call("DELETE", path)).status == 200
    assert (await api.call("DELETE", f"{path}&purge=true")).status == 403
    grants.capabilities |= {Capability.PURGE_JOB}
    assert (await api.call("DELETE", f"{path}&purge=true")).status == 200


async def test_what_needs_another_right_is_refused(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    assert (await api.call("DELETE", "/v1/evaluations?namespace=*", {"Filter": "ID is not empty"})).status == 403
    assert (await api.call("DELETE", f"/v1/namespace/{OWN}")).status == 403
    assert (await api.get("/v1/node/pool/default/jobs?namespace=*")).status == 403


async def test_how_long_a_blocking_query_takes_does_not_tell_whether_a_hidden_row_exists(
    granted: tuple[Api, Grants],
) -> None:
    api, _ = granted
    waiters = api.client.server.app[CONTEXT].waiters
    free = waiters._value
    asked = f"/v1/namespace/{{}}?index={api.server.state.index}&wait=60s"
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        asks = [group.create_task(api.get(asked.format(name))) for name in (OTHER, "absent")]
        await eventually(lambda: waiters._value == free - len(asks))
        changed = Namespace(name=OTHER, description="changed")
        await api.server.replica.propose(UpsertNamespaces(namespaces=(changed,)))
    there, absent = (each.result() for each in asks)
    assert (there.status, there.text, there.index) == (absent.status, absent.text, absent.index)


async def test_a_caller_waits_for_the_table_where_a_row_may_be_hidden(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    ids = Ids(api)
    access = Access(need=needs.namespace(Capability.READ_JOB), authority=grants)
    rows = View(api.server.state, access).of(AllocationRows)
    assert rows.watched_of(ids.allocs[OTHER]) == rows.watched_of(UNKNOWN_ID) == rows.watched()
    assert rows.watched_of(ids.allocs[OWN]) == rows.watched(ids.allocs[OWN])
    everything = View(api.server.state, Access()).of(AllocationRows)
    assert everything.watched_of(UNKNOWN_ID) == everything.watched(UNKNOWN_ID)
