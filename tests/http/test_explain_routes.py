"""Yurt's own routes: why an allocation is where it is, why a job is not placed, an evaluation made again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from yurt.access import Access, AllowAll, Authority, Capability, needs
from yurt.scheduler import explain
from yurt.server.config import ServerConfig
from yurt.server.operations.explanations import Explanations
from yurt.structs.cluster import Namespace
from yurt.structs.commands import UpsertNamespaces
from yurt.structs.explain.explanation import AllocationExplanation
from yurt.testing import factories
from yurt.testing.authorities import Grants
from yurt.testing.http_api import UNKNOWN_ID, Api, add_ready_node, job_document, serving
from yurt.testing.quotas import bound


def _asking(memory_mb: int, **changes: Any) -> dict[str, Any]:
    made = job_document(**changes)
    made["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": memory_mb}
    return made


async def test_a_job_that_does_not_fit_is_explained_without_being_stored(api: Api) -> None:
    await add_ready_node(api)
    answer = await api.put("/v1/yurt/job/why-not", {"Job": _asking(10_000)})
    (group,) = answer.json["Groups"]
    assert answer.status == 200 and group["Unplaced"] == 1
    assert group["Blockers"] == [{"Kind": "memory", "Text": "memory", "Nodes": 1, "Alone": 1}]
    assert group["NearMisses"][0]["NodeName"] == "worker"
    assert [short["Text"] for short in group["NearMisses"][0]["Shortfalls"]] == ["1808 MB memory short"]
    assert group["SmallestChange"]["Text"] == 'lower the memory of task "main" from 10000 to 8192 MB'
    assert group["SmallestChange"]["Places"] == 1
    assert (await api.get("/v1/job/web")).status == 404


async def test_a_known_job_is_explained_by_its_id_and_its_allocation_by_its_scores(api: Api) -> None:
    await add_ready_node(api)
    await api.register("web", TaskGroups=_asking(5000)["TaskGroups"])
    allocs = await api.wait_until("/v1/job/web/allocations", bool)
    known = (await api.put("/v1/yurt/job/why-not", {"JobID": "web"})).json
    assert [(group["Running"], group["Unplaced"]) for group in known["Groups"]] == [(1, 0)]

    found = (await api.get(f"/v1/yurt/allocation/{allocs[0]['ID']}/why")).json
    assert found["Text"] == "node worker was chosen as the only one that was looked at"
    assert [(score["NodeName"], score["Chosen"]) for score in found["Scores"]] == [("worker", True)]
    assert found["TriggeredBy"] == "job-register"


async def test_what_cannot_be_explained_says_so(api: Api) -> None:
    assert (await api.get(f"/v1/yurt/allocation/{UNKNOWN_ID}/why")).status == 404
    unknown = await api.put("/v1/yurt/job/why-not", {"JobID": "nope"})
    assert (unknown.status, unknown.text) == (404, 'job "nope" in namespace "default" not found')
    assert (await api.put("/v1/yurt/job/why-not", {})).text == "Job or JobID must be specified"
    refused = await api.put("/v1/yurt/job/why-not", {"Job": _asking(5)})
    assert refused.status == 400 and "minimum MemoryMB value is 10" in refused.text


async def test_of_a_job_that_only_launches_others_a_child_is_explained(api: Api) -> None:
    await add_ready_node(api)
    found = (await api.put("/v1/yurt/job/why-not", {"Job": _asking(10_000, ParameterizedJob={})})).json
    assert found["JobID"] == "web" and found["Groups"][0]["Unplaced"] == 1
    assert 'job "web" is parameterized: this is what one of its children would find now' in found["Warnings"]
    periodic = {"Enabled": True, "Spec": "0 0 1 1 *", "SpecType": "cron"}
    await api.register("web", Periodic=periodic, TaskGroups=_asking(50)["TaskGroups"])
    known = (await api.put("/v1/yurt/job/why-not", {"JobID": "web"})).json
    assert (known["JobID"], known["Groups"][0]["Placed"]) == ("web", 1) and "periodic" in known["Warnings"][0]


async def test_a_quota_is_explained(api: Api) -> None:
    await add_ready_node(api)
    for command in bound():
        await api.server.replica.propose(command)
    (group,) = (await api.put("/v1/yurt/job/why-not", {"Job": _asking(1200)})).json["Groups"]
    text = "quota small: memory exhausted (1200 MB needed, 1000 of 1000 MB left)"
    assert group["Blockers"] == [{"Kind": "quota", "Text": text, "Nodes": 1, "Alone": 1}]
    assert group["Notes"] == ['quota "small" allows 1000 MB of memory; 0 are used']


async def test_an_evaluation_is_replayed_and_an_unknown_one_is_not_found(api: Api) -> None:
    await add_ready_node(api)
    await api.register("web", TaskGroups=_asking(500)["TaskGroups"])
    allocs = await api.wait_until("/v1/job/web/allocations", bool)
    found = (await api.get(f"/v1/yurt/evaluation/{allocs[0]['EvalID']}/replay")).json
    (attempt,) = found["Attempts"]
    assert found["IsIdentical"] and attempt["Placements"] == 1 and attempt["StoredDigest"] == attempt["AcceptedDigest"]
    assert "Attempts" not in (await api.get(f"/v1/evaluation/{allocs[0]['EvalID']}")).json
    assert (await api.get(f"/v1/yurt/evaluation/{UNKNOWN_ID}/replay")).status == 404


async def test_an_explanation_is_for_those_who_may_read_the_job() -> None:
    grants = Grants("own", Capability.READ_JOB)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace in ("own", "other"):
            await api.put("/v1/namespace", {"Name": namespace})
            await api.register(Namespace=namespace)
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        state = api.server.state
        ids = [(row.namespace, f"allocation/{row.id}/why") for row in state.allocs.values()]
        ids += [(row.namespace, f"evaluation/{row.id}/replay") for row in state.evals.values()]
        grants.is_on = True
        for namespace, path in ids:
            status = 200 if namespace == "own" else 404
            assert (await api.get(f"/v1/yurt/{path}?namespace=own")).status == status, path


async def test_a_job_is_explained_in_the_namespace_of_the_body() -> None:
    async with serving(authority=Grants("own", Capability.READ_JOB)) as api:
        await api.server.replica.propose(
            UpsertNamespaces(namespaces=tuple(Namespace(name=name) for name in ("own", "other")))
        )
        path = "/v1/yurt/job/why-not?namespace={}"
        assert (await api.put(path.format("other"), {"Job": _asking(100, Namespace="own")})).status == 200
        refused = await api.put(path.format("own"), {"Job": _asking(100, Namespace="other")})
        assert (refused.status, refused.text) == (403, "Permission denied")
        invalid = await api.put(path.format("own"), {"Job": _asking(5, Namespace="other")})
        assert invalid.status == 403
        assert (await api.put(path.format("own"), {"JobID": "web", "Namespace": "other"})).status == 404


async def test_preempted_allocations_of_other_namespaces_are_not_named() -> None:
    own, other = (factories.alloc(factories.job(namespace=name)) for name in ("own", "other"))
    preempted = (own.id, other.id, "forgotten")

    async def named(authority: Authority) -> tuple[str, ...]:
        access = Access(authority=authority, need=needs.namespace(Capability.READ_JOB))
        state = SimpleNamespace(allocs={own.id: own, other.id: other})
        found = Explanations(
            cast("Any", state), access, config=ServerConfig(name="s"), limits={}, replay=cast("Any", None)
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(explain, "why", lambda *_, **__: shown)
            return (await found.why(own, seed=1)).preempted_allocations

    shown = AllocationExplanation(
        alloc_id=own.id, name="", namespace="own", job_id="", task_group="", preempted_allocations=preempted
    )
    assert await named(Grants("own", Capability.READ_JOB)) == (own.id,)
    assert await named(AllowAll()) == preempted
