"""Each resource as a caller with rights in one namespace has it: rows elsewhere are not listed, found or changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar, cast
from uuid import uuid4

import pytest
from yurt.access import Access, Capability, needs
from yurt.access.needs import VariableCapability
from yurt.client.client import Client
from yurt.sdk.value import UnixNano
from yurt.server.views import View
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.commands import PutHostVolume, UpsertVolumes
from yurt.structs.rpc import FileInfo
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories
from yurt.testing.authorities import Grants
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, add_ready_node, job_document, serving

OWN, OTHER = "own", "other"
READ_JOB = needs.namespace(Capability.READ_JOB)


@pytest.fixture
async def granted() -> AsyncIterator[tuple[Api, Grants]]:
    """Namespaces `own` and `other` with a deployed job each, and callers who may do something in `own` alone."""
    grants = Grants(OWN, Capability.READ_JOB)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace in (OWN, OTHER):
            assert (await api.put("/v1/namespace", {"Name": namespace})).status == 200
            assert (await api.register(Namespace=namespace, Type="service")).status == 200
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        grants.is_on = True
        yield api, grants


def deployment_ids(api: Api) -> dict[str, str]:
    return {row.namespace: row.id for row in api.server.state.deployments.values()}


async def test_deployments_elsewhere_are_not_seen(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    ids = deployment_ids(api)
    assert [row["ID"] for row in (await api.get("/v1/deployments?namespace=*")).json] == [ids[OWN]]
    assert (await api.get(f"/v1/deployment/{ids[OWN]}?namespace={OTHER}")).status == 200
    hidden = await api.get(f"/v1/deployment/{ids[OTHER]}?namespace={OWN}")
    assert (hidden.status, hidden.text) == (404, "deployment not found")
    assert len((await api.get(f"/v1/deployment/allocations/{ids[OWN]}")).json) == 1
    assert (await api.get(f"/v1/deployment/allocations/{ids[OTHER]}")).json == []


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("fail", {}), ("pause", {"Pause": True}), ("promote", {"All": True}),
        ("allocation-health", {"HealthyAllocationIDs": ["x"]}),
    ],
)  # fmt: skip
async def test_a_deployment_elsewhere_is_not_changed(granted: tuple[Api, Grants], verb: str, body: object) -> None:
    api, grants = granted
    grants.capabilities |= {Capability.SUBMIT_JOB}
    ids, before = deployment_ids(api), api.server.state.deployments
    asked = {**body, "DeploymentID": ids[OTHER]} if isinstance(body, dict) else None
    refused = await api.put(f"/v1/deployment/{verb}/{ids[OTHER]}?namespace={OWN}", asked)
    assert (refused.status, refused.text) == (500, "deployment not found")
    assert api.server.state.deployments[ids[OTHER]] == before[ids[OTHER]]


async def test_a_deployment_of_the_caller_is_changed(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.capabilities |= {Capability.SUBMIT_JOB}
    own = deployment_ids(api)[OWN]
    done = await api.put(f"/v1/deployment/pause/{own}", {"DeploymentID": own, "Pause": True})
    assert (done.status, api.server.state.deployments[own].status) == (200, "paused")


async def test_a_node_tells_the_allocations_that_the_caller_may_see(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    assert (await api.get(f"/v1/node/{NODE_ID}/allocations")).status == 403
    grants.elsewhere = frozenset({needs.NODE_READ})
    assert [row["Namespace"] for row in (await api.get(f"/v1/node/{NODE_ID}/allocations")).json] == [OWN]
    assert [row["ID"] for row in (await api.get("/v1/nodes")).json] == [NODE_ID]


async def test_a_node_is_changed_by_those_who_may_write_nodes(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.elsewhere = frozenset({needs.NODE_READ})
    asked = {"Eligibility": "ineligible"}
    assert (await api.put(f"/v1/node/{NODE_ID}/eligibility", asked)).status == 403
    grants.elsewhere = frozenset({needs.NODE_WRITE})
    assert (await api.put(f"/v1/node/{NODE_ID}/eligibility", asked)).status == 200
    assert api.server.state.nodes[NODE_ID].scheduling_eligibility == "ineligible"


async def test_services_elsewhere_are_not_seen(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    allocs = {alloc.namespace: alloc for alloc in api.server.state.allocs.values()}
    for alloc in allocs.values():
        await api.server.clients.calls.register_services(NODE_ID, (factories.service(alloc, "api"),))
    assert [row["Namespace"] for row in (await api.get("/v1/services?namespace=*&per_page=1")).json] == [OWN]
    assert [row["Namespace"] for row in (await api.get("/v1/service/api?namespace=*")).json] == [OWN]
    assert [row["Namespace"] for row in (await api.get("/v1/service/api?namespace=*&choose=9|x")).json] == [OWN]
    assert (await api.get(f"/v1/service/api?namespace={OTHER}")).status == 403
    assert (await api.get(f"/v1/allocation/{allocs[OTHER].id}/services")).status == 404
    grants.capabilities |= {Capability.SUBMIT_JOB}
    (hidden,) = (each.id for each in api.server.state.services.values() if each.namespace == OTHER)
    assert (await api.call("DELETE", f"/v1/service/api/{hidden}?namespace={OWN}")).status == 404
    assert (await api.call("DELETE", f"/v1/service/api/{hidden}?namespace={OTHER}")).status == 403
    assert hidden in api.server.state.services


async def test_variables_elsewhere_are_not_seen_and_not_changed(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.is_on = False
    for namespace in (OWN, OTHER):
        assert (await api.put(f"/v1/var/secret?namespace={namespace}", {"Items": {"user": "anna"}})).status == 200
    grants.is_on = True
    assert (await api.get("/v1/vars?namespace=*")).json == []
    grants.capabilities |= set(VariableCapability)
    assert [row["Namespace"] for row in (await api.get("/v1/vars?namespace=*&per_page=1")).json] == [OWN]
    assert (await api.get(f"/v1/var/secret?namespace={OWN}")).json["Items"] == {"user": "anna"}
    body = {"Namespace": OTHER, "Items": {"user": "bert"}}
    hidden, before = f"/v1/var/secret?namespace={OTHER}", api.server.state.variables[OTHER, "secret"]
    assert [(await api.get(hidden)).status, (await api.put(hidden, body)).status] == [403, 403]
    assert (await api.call("DELETE", hidden)).status == 403
    assert api.server.state.variables[OTHER, "secret"] == before


async def test_a_writer_without_read_sees_no_items(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.capabilities |= {VariableCapability.WRITE, VariableCapability.DESTROY}
    path, body = f"/v1/var/secret?namespace={OWN}", {"Items": {"user": "anna"}}
    written = await api.put(path, body)
    assert (written.status, written.json.get("Items"), written.json["Path"]) == (200, None, "secret")
    locked = await api.put(f"{path}&lock-acquire", {})
    assert locked.status == 200 and "Items" not in locked.json and locked.json["Lock"]["ID"]
    for refused in (await api.put(f"{path}&cas=1", body), await api.call("DELETE", f"{path}&cas=1")):
        assert (refused.status, refused.json["Path"], "Items" in refused.json) == (409, "secret", False)
    grants.capabilities |= {VariableCapability.READ}
    assert (await api.put(f"{path}&cas=1", body)).json["Items"] == {"user": "anna"}


async def test_a_write_may_name_its_namespace_in_the_body_alone(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.capabilities |= {VariableCapability.WRITE}
    answers = [await api.put("/v1/var/x", {"Namespace": name, "Items": {"a": "b"}}) for name in (OWN, OTHER)]
    assert [answer.status for answer in answers] == [200, 403]
    assert (OTHER, "x") not in api.server.state.variables


async def test_scaling_policies_elsewhere_are_not_seen(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.is_on = False
    document = job_document("scaled", Type="service")
    document["TaskGroups"][0]["Scaling"] = {"Min": 1, "Max": 3, "Enabled": True}
    for namespace in (OWN, OTHER):
        assert (await api.put("/v1/jobs", {"Job": document | {"Namespace": namespace}})).status == 200
    ids = {row["Target"]["Namespace"]: row["ID"] for row in (await api.get("/v1/scaling/policies?namespace=*")).json}
    assert set(ids) == {OWN, OTHER}
    grants.capabilities |= {Capability.LIST_JOBS}
    grants.is_on = True
    listed = await api.get("/v1/scaling/policies?namespace=*&per_page=1")
    assert [row["ID"] for row in listed.json] == [ids[OWN]] and "X-Nomad-NextToken" not in listed.headers
    assert (await api.get(f"/v1/scaling/policy/{ids[OWN]}?namespace={OTHER}")).status == 200
    assert (await api.get(f"/v1/scaling/policy/{ids[OTHER]}?namespace={OWN}")).status == 404


def host_volume(namespace: str) -> HostVolume:
    return HostVolume(
        id=str(uuid4()),
        name=f"data-{namespace}",
        namespace=namespace,
        node_id=NODE_ID,
        plugin_id="mkdir",
        host_path="/data",
    )


async def test_host_volumes_elsewhere_are_not_seen_and_not_changed(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    own, other = host_volume(OWN), host_volume(OTHER)
    for volume in (own, other):
        await api.server.replica.propose(PutHostVolume(volume=volume, now=UnixNano(1)))
    listed, hidden = "/v1/volumes?type=host&namespace=*&per_page=1", f"/v1/volume/host/{other.id}"
    grants.capabilities = frozenset({Capability.LIST_JOBS})
    assert (await api.get(listed)).json == []
    grants.capabilities = frozenset({Capability.HOST_VOLUME_READ, Capability.HOST_VOLUME_WRITE})
    answer = await api.get(listed)
    assert [row["ID"] for row in answer.json] == [own.id] and "X-Nomad-NextToken" not in answer.headers
    for namespace in (OWN, OTHER):
        assert (await api.get(f"/v1/volume/host/{own.id}?namespace={namespace}")).status == 200
    for namespace in (OWN, OTHER, "*"):
        assert (await api.get(f"{hidden}?namespace={namespace}")).status == 404
        assert (await api.call("DELETE", f"{hidden}/delete?namespace={namespace}")).status == 404
    body = {"Volume": {"Name": "more", "Namespace": OTHER, "PluginID": "mkdir"}}
    assert (await api.put("/v1/volume/host/create", body)).status == 403
    assert {row.id for row in api.server.state.host_volumes.values()} == {own.id, other.id}


async def test_csi_volumes_elsewhere_are_not_seen_and_not_changed(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    grants.elsewhere = frozenset({needs.PLUGIN_READ})
    volumes = tuple(CSIVolume(id="data", namespace=name, external_id="x", plugin_id="ebs") for name in (OWN, OTHER))
    await api.server.replica.propose(UpsertVolumes(volumes=volumes, now=UnixNano(1)))
    listed, hidden = "/v1/volumes?type=csi&namespace=*&per_page=1", f"/v1/volume/csi/data?namespace={OTHER}"
    grants.capabilities = frozenset({Capability.HOST_VOLUME_READ})
    assert (await api.get(listed)).json == []
    grants.capabilities = frozenset({Capability.CSI_READ_VOLUME, Capability.CSI_WRITE_VOLUME})
    answer = await api.get(listed)
    assert [row["Namespace"] for row in answer.json] == [OWN] and "X-Nomad-NextToken" not in answer.headers
    assert (await api.get(f"/v1/volume/csi/data?namespace={OWN}")).status == 200
    assert (await api.get(hidden)).status == 403
    assert (await api.call("DELETE", hidden)).status == 403
    body = {"Volumes": [{"ID": "data", "Namespace": OTHER, "ExternalID": "y", "PluginID": "ebs"}]}
    assert (await api.put(f"/v1/volumes?namespace={OWN}", body)).status == 403
    assert api.server.state.csi_volumes[OTHER, "data"].external_id == "x"


async def test_a_search_finds_what_the_caller_may_list_of_each_context(granted: tuple[Api, Grants]) -> None:
    api, grants = granted
    allocs = {alloc.namespace: alloc.id for alloc in api.server.state.allocs.values()}
    asked = {"Prefix": "", "Context": "all"}
    found = (await api.put("/v1/search?namespace=*", asked)).json["Matches"]
    assert (found["allocs"], found["namespaces"], "nodes" in found) == ([allocs[OWN]], [OWN], False)
    fuzzy = (await api.put("/v1/search/fuzzy?namespace=*", {"Text": "web", "Context": "jobs"})).json["Matches"]
    assert fuzzy == {"jobs": [{"ID": "web", "Scope": [OWN, "web"]}]}
    grants.capabilities = frozenset({Capability.CSI_READ_VOLUME})
    found = (await api.put("/v1/search?namespace=*", asked)).json["Matches"]
    assert not {"allocs", "jobs", "evals", "deployment"} & set(found)


async def test_a_count_leaves_out_what_the_caller_may_not_see(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    allocations = View(api.server.state, Access(need=READ_JOB, authority=granted[1])).of(AllocationRows)
    assert (allocations.count_where("node", NODE_ID), len(allocations.where("node", NODE_ID))) == (1, 1)
    assert [allocations.count_of_job((namespace, "web")) for namespace in (OWN, OTHER)] == [1, 0]


class OwnClient:
    """The client of the same agent, with two allocations that the servers have forgotten."""

    node_id = NODE_ID
    namespaces: ClassVar = {"aaaaaaaa-2222-4333-8444-555555555555": OWN, "bbbbbbbb-2222-4333-8444-555555555555": OTHER}

    def alloc_namespace(self, alloc_id: str) -> str | None:
        return self.namespaces.get(alloc_id)

    @property
    def calls(self) -> OwnClient:
        return self

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        return ()


async def test_the_agents_own_client_shows_files_of_the_callers_namespace_alone() -> None:
    grants = Grants(OWN, Capability.READ_FS)
    async with serving(authority=grants, client=cast(Client, OwnClient())) as api:
        answers = [await api.get(f"/v1/client/fs/ls/{alloc_id}?namespace={OWN}") for alloc_id in OwnClient.namespaces]
        unknown = await api.get(f"/v1/client/fs/ls/{UNKNOWN_ID}")
    assert [answer.status for answer in answers] == [200, 404]
    assert answers[1].text.startswith("Unknown allocation") and unknown.text.startswith("Unknown allocation")
