"""The routes of quotas: their wire format, usage, blocking reads and rights."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.access import Capability, needs
from yurt.http.resources.quotas import normalised
from yurt.testing.access import bootstrapped
from yurt.testing.authorities import Grants
from yurt.testing.http_api import Api, add_ready_node, job_document, serving

SPEC = {"Name": "team", "Description": "Ours", "Limits": [{"Region": "global", "RegionLimit": {"CPU": 900, "Devices": [
    {"Name": "nvidia/gpu", "Count": 2}], "Storage": {"VariablesMB": 1}, "NodePools": [{"NodePool": "gpu", "Cores": -1}],
}}]}  # fmt: skip


async def bind(api: Api, spec: Any = SPEC, namespace: str = "default") -> None:
    assert (await api.put("/v1/quota", spec)).status == 200
    assert (await api.put("/v1/namespace", {"Name": namespace, "Quota": spec["Name"]})).status == 200


def limit(**resources: Any) -> dict[str, Any]:
    return {"Name": "team", "Limits": [{"Region": "global", "RegionLimit": resources}]}


async def test_a_quota_is_written_as_nomad_writes_it(api: Api) -> None:
    stored = await api.put("/v1/quota", SPEC)
    assert (stored.status, stored.text) == (200, "")
    found = (await api.get("/v1/quota/team")).json
    assert found["CreateIndex"] == found["ModifyIndex"] == stored.index
    (one,) = found["Limits"]
    assert (len(one["Hash"]), one["Region"], one["VariablesLimit"]) == (44, "global", None)
    resources = one["RegionLimit"]
    assert resources.keys() == {
        "CPU", "Cores", "MemoryMB", "MemoryMaxMB", "Devices", "NUMA", "SecretsMB", "Storage", "NodePools",
    }  # fmt: skip
    assert (resources["CPU"], resources["MemoryMB"]) == (900, None)
    assert resources["Storage"] == {"VariablesMB": 1, "HostVolumesMB": 0}
    assert resources["Devices"] == [{"Name": "nvidia/gpu", "Count": 2, "Constraints": None, "Affinities": None}]
    assert (await api.get("/v1/quotas")).json == [found]
    assert (await api.get("/v1/quotas?prefix=x")).json == []
    assert (await api.put("/v1/quota/team", found)).status == 200, "what was read can be written back"


async def test_usage_is_told_by_the_hash_of_the_limit(api: Api) -> None:
    await bind(api)
    await add_ready_node(api)
    await api.register("web")
    await api.wait_until("/v1/job/web/allocations", bool)
    key = (await api.get("/v1/quota/team")).json["Limits"][0]["Hash"]
    usage = (await api.get("/v1/quota/usage/team")).json
    used = usage["Used"][key]["RegionLimit"]
    assert (usage["Name"], usage["Namespaces"], used["CPU"] > 0) == ("team", ["default"], True)
    assert used["Devices"][0]["Count"] == 0 and used["NodePools"][0]["NodePool"] == "gpu"
    assert (await api.get("/v1/quota-usages")).json == [usage]
    assert (await api.get("/v1/quota-usages?prefix=x")).json == []


async def test_a_blocking_read_of_usage_wakes_when_an_allocation_comes(api: Api) -> None:
    await bind(api)
    await add_ready_node(api)
    first = await api.get("/v1/quota/usage/team")
    waiting = asyncio.ensure_future(api.get(f"/v1/quota/usage/team?index={first.index}&wait=30s"))
    await api.register("web")
    answer = await waiting
    assert answer.index > first.index


async def test_unknown_quotas_are_not_found(api: Api) -> None:
    for path in ("/v1/quota/none", "/v1/quota/usage/none"):
        answer = await api.get(path)
        assert (answer.status, answer.text) == (404, "quota not found")
    assert (await api.call("DELETE", "/v1/quota/none")).status == 404
    refused = await api.put("/v1/namespace", {"Name": "a", "Quota": "none"})
    assert refused.status == 500 and 'names quota "none", which does not exist' in refused.text


async def test_a_quota_that_a_namespace_names_is_not_deleted(api: Api) -> None:
    await bind(api, namespace="a")
    refused = await api.call("DELETE", "/v1/quota/team")
    assert (refused.status, "is named by a namespace" in refused.text, '"a"' in refused.text) == (409, True, False)
    await api.put("/v1/namespace", {"Name": "a"})
    assert (await api.call("DELETE", "/v1/quota/team")).status == 200
    assert (await api.get("/v1/quotas")).json == []


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ({"Name": "a b", "Limits": []}, ['invalid name "a b"', "no limits"]),
        (limit(Cpus=5), ['unknown key "QuotaSpec.Limits[0].RegionLimit.Cpus"; did you mean "CPU"?']),
        (limit(CPU=1 << 60), ["cpu must be at most"]),
        (limit(Devices=[{"Name": "gpu", "Count": 0}]), ["count = 0 could mean none or any number"]),
        (limit(Devices=[{"Name": "gpu"}, {"Name": "gpu"}]), ["it has another block"]),
        (limit(Devices=[{"Name": "gpu", "Constraints": [{"LTarget": "a"}]}]), ["constraints and affinities"]),
        (limit(NodePools=[{"NodePool": "all", "CPU": 1}]), ['the pool "all" is every pool']),
        (limit(NodePools=[{"NodePool": "a", "Storage": {"VariablesMB": 1}}]), ["storage is limited for the region"]),
        (limit(NUMA={"Affinity": "require"}), ["numa cannot be limited"]),
        (limit(Storage={"HostVolumes": "many"}), ["is not a size"]),
        ({"Name": "team", "Limits": [{"Region": "a"}, {"Region": "a"}, {}]}, ["another limit", "names no region"]),
        ([1], ["expected object"]),
        ({"Name": "team", "Limits": [{"Region": "a", "RegionLimit": {"CPU": "x"}}]}, ["CPU"]),
    ],
)  # fmt: skip
async def test_a_limit_that_would_not_hold_is_refused(api: Api, spec: Any, texts: list[str]) -> None:
    answer = await api.put("/v1/quota", spec)
    assert answer.status == 400
    for text in texts:
        assert text in answer.text
    assert (await api.get("/v1/quotas")).json == []


async def test_the_path_names_the_quota_of_the_body(api: Api) -> None:
    answer = await api.put("/v1/quota/other", SPEC)
    assert (answer.status, answer.text) == (400, "Quota name does not match request path")


def test_the_spellings_of_the_example_file_of_nomad_are_accepted() -> None:
    given = limit(
        Storage={"Variables": 5, "HostVolumes": "2 GiB"}, MemoryMB=None,
        NodePool={"gpu": {"CPU": 1}}, Networks=None,
    )  # fmt: skip
    resources = normalised(given)["Limits"][0]["RegionLimit"]
    assert resources == {
        "Storage": {"VariablesMB": 5, "HostVolumesMB": 2048}, "NodePools": [{"NodePool": "gpu", "CPU": 1}],
    }  # fmt: skip


async def test_a_variable_beyond_its_quota_is_refused(api: Api) -> None:
    await bind(api, limit(Storage={"VariablesMB": -1}))
    body = {"Namespace": "default", "Path": "p", "Items": {"a": "b"}}
    answer = await api.put("/v1/var/p", body)
    assert (answer.status, 'quota "team" allows no variables' in answer.text) == (400, True)


async def test_quotas_are_searched(api: Api) -> None:
    await bind(api)
    found = (await api.call("POST", "/v1/search", {"Prefix": "te", "Context": "quotas"})).json
    assert found["Matches"]["quotas"] == ["team"]


async def test_reading_and_writing_need_the_levels_of_quotas() -> None:
    grants = Grants("own", Capability.READ_JOB)
    grants.is_on = False
    async with serving(authority=grants) as api:
        for namespace in ("own", "hidden"):
            await bind(api, namespace=namespace)
        grants.is_on = True
        paths = ("/v1/quotas", "/v1/quota-usages", "/v1/quota/team", "/v1/quota/none", "/v1/quota/usage/team")
        assert {(await api.get(path)).status for path in paths} == {403}
        grants.elsewhere = frozenset({needs.QUOTA_READ})
        assert [(await api.get(path)).status for path in paths] == [200, 200, 200, 404, 200]
        usage = (await api.get("/v1/quota/usage/team")).json
        assert usage["Namespaces"] == ["own"], "a namespace that the caller may not see is not told"
        assert (await api.put("/v1/quota", SPEC)).status == 403
        assert {(await api.call("DELETE", f"/v1/quota/{name}")).status for name in ("team", "none")} == {403}
        grants.elsewhere = frozenset({needs.QUOTA_WRITE})
        refused = await api.call("DELETE", "/v1/quota/team")
        assert (refused.status, "hidden" in refused.text) == (409, False)


async def test_why_not_tells_who_uses_a_quota_as_far_as_the_caller_may_see() -> None:
    grants = Grants("own", Capability.READ_JOB)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace in ("own", "hidden"):
            await bind(api, limit(CPU=250), namespace)
            await api.register("web", Namespace=namespace)
            await api.wait_until(f"/v1/job/web/evaluations?namespace={namespace}", bool)
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        body = {"JobID": "web", "Namespace": "own", "Job": job_document("more", Namespace="own")}
        (group,) = (await api.put("/v1/yurt/job/why-not", body)).json["Groups"]
        assert group["Notes"] == ['quota "team" allows 250 MHz of cpu; 200 are used by namespaces hidden, own']
        grants.is_on = True
        (group,) = (await api.put("/v1/yurt/job/why-not", body)).json["Groups"]
        assert group["Notes"] == ['quota "team" allows 250 MHz of cpu; 200 are used by namespaces own, others']


async def test_metrics_tell_what_is_used_of_a_quota_and_allowed(api: Api) -> None:
    await bind(api, limit(CPU=900, Cores=-1, Devices=[{"Name": "nvidia/gpu", "Count": 2}]))
    await add_ready_node(api)
    await api.register("web")
    await api.wait_until("/v1/job/web/allocations", bool)
    gauges = (await api.get("/v1/metrics")).json["Gauges"]
    found = {
        (each["Name"].rpartition(".")[2], each["Labels"]["dimension"]): each["Value"]
        for each in gauges
        if each["Name"] in ("nomad.nomad.quota.used", "nomad.nomad.quota.limit")
    }
    assert (found["used", "cpu"], found["limit", "cpu"], found["limit", "cores"]) == (100, 900, 0)
    assert (found["used", "device nvidia/gpu"], found["limit", "device nvidia/gpu"]) == (0, 2)
    assert ("limit", "memory") not in found


async def test_metrics_of_quotas_need_no_token_under_access_control() -> None:
    async with bootstrapped() as callers:
        assert (await callers.put("/v1/quota", SPEC)).status == 200
        assert (await callers.put("/v1/namespace", {"Name": "prod", "Quota": SPEC["Name"]})).status == 200
        for form in ("", "?format=prometheus"):
            answer = await callers.api.get(f"/v1/metrics{form}")
            assert answer.status == 200 and "quota" in answer.text


async def test_guarantee_weight_and_parent_are_shown_only_where_they_are_set(api: Api) -> None:
    await api.put("/v1/quota", SPEC)
    spec = (await api.get("/v1/quota/team")).json
    assert not {"Parent", "Weight", "Protection"} & spec.keys() and "Guaranteed" not in spec["Limits"][0]
    guarantee = {"CPU": 500, "Devices": [{"Name": "nvidia/gpu", "Count": 1}]}
    child = limit(CPU=900) | {"Name": "low", "Parent": "team", "Weight": 2, "Protection": "90s"}
    child["Limits"][0]["Guaranteed"] = guarantee
    assert (await api.put("/v1/quota", child)).status == 200
    found = (await api.get("/v1/quota/low")).json
    assert (found["Parent"], found["Weight"], found["Protection"]) == ("team", 2, 90_000_000_000)
    assert found["Limits"][0]["Guaranteed"]["CPU"] == 500
    assert (await api.put("/v1/quota/low", found)).status == 200, "what was read can be written back"
    usage = (await api.get("/v1/quota/usage/low")).json["Used"][found["Limits"][0]["Hash"]]
    assert usage["Guaranteed"]["Devices"][0]["Count"] == 0


async def test_quotas_that_do_not_fit_the_others_are_refused(api: Api) -> None:
    refused = await api.put("/v1/quota", limit(CPU=1) | {"Parent": "none"})
    assert (refused.status, 'quota "none" does not exist' in refused.text) == (400, True)
    await api.put("/v1/quota", SPEC)
    await api.put("/v1/quota", limit(CPU=1) | {"Name": "low", "Parent": "team"})
    refused = await api.call("DELETE", "/v1/quota/team")
    assert (refused.status, 'is the parent of quota "low"' in refused.text) == (409, True)


async def test_the_usage_of_a_quota_includes_what_is_used_below_it(api: Api) -> None:
    await api.put("/v1/quota", SPEC)
    await bind(api, limit(CPU=900) | {"Name": "low", "Parent": "team"})
    await add_ready_node(api)
    await api.register("web")
    await api.wait_until("/v1/job/web/allocations", bool)
    (used,) = (await api.get("/v1/quota/usage/team")).json["Used"].values()
    assert used["RegionLimit"]["CPU"] > 0
